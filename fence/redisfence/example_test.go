package redisfence_test

import (
	"context"
	"errors"
	"log"
	"strconv"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/fence/redisfence"
)

// Sell one item. The lock may be on any store.
func ExampleUpdate() {
	ctx := context.Background()
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer client.Close()
	l, err := locker.Open(ctx, "redis://localhost:6379")
	if err != nil {
		log.Fatal(err)
	}
	defer l.Close()

	err = locker.Do(ctx, l, "stock:42", func(ctx context.Context) error {
		lock, _ := locker.FromContext(ctx)
		return redisfence.Update(ctx, client, lock, "{stock:42}:items", func(items string, ok bool) (string, error) {
			n, err := strconv.Atoi(items)
			if !ok || err != nil || n == 0 {
				return "", errors.New("sold out")
			}
			return strconv.Itoa(n - 1), nil
		})
	})
	if err != nil {
		log.Print(err)
	}
}

// Any commands, as one step.
func ExampleScript_Run() {
	ctx := context.Background()
	client := goredis.NewClient(&goredis.Options{Addr: "localhost:6379"})
	defer client.Close()
	var lock *locker.Lock // held

	move := redisfence.NewScript(`
		redis.call('HSET', KEYS[1], 'state', ARGV[1])
		return redis.call('HGETALL', KEYS[1])`)
	order, err := move.Run(ctx, client, lock, []string{"{order:7}"}, "shipped").StringSlice()
	log.Print(order, err)
}
