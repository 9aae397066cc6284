package redis_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	goredis "github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestRenewalGivenUp: a renewal whose context has ended reports that, and does not read what
// the replicas have acknowledged, which its connection may still be writing.
func TestRenewalGivenUp(t *testing.T) {
	t.Parallel()
	srv := testbed.Redis(t)
	d, err := redis.New(dial(t, srv.Addr()), redis.WithReplicas(1, 10*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	r := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, redis.ErrReplicas) { // but the ticket holds
		t.Fatalf("acquired without a replica: %v", err)
	}
	if err := d.Renew(t.Context(), r.Hold(0), r.TTL); !errors.Is(err, redis.ErrReplicas) { // from now on the server knows the script
		t.Fatalf("renewed without a replica: %v", err)
	}
	ctx, c := t.Context(), dial(t, srv.Addr())
	before, _ := renewals(ctx, c)
	srv.Pause()
	// To the race detector, whatever is sent happens before all that is received later. So
	// this test sends nothing after the renewals, and the goroutine that waits for their
	// answers begins before them and shares nothing with the test.
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		for n, waits := 0, true; ctx.Err() == nil && (waits || n < before+2); time.Sleep(2 * time.Millisecond) {
			n, waits = renewals(ctx, c)
		}
		time.Sleep(50 * time.Millisecond) // in which the connections read these answers
	}()
	cause := errors.New("given up")
	bound, cancel := context.WithCancelCause(t.Context())
	time.AfterFunc(50*time.Millisecond, func() { cancel(cause) })
	one := make(chan error, 1)
	go func() { one <- d.Renew(bound, r.Hold(0), r.TTL) }()
	all := d.RenewAll(bound, []driver.Renewal{{Hold: r.Hold(0), TTL: r.TTL}})
	for _, err := range append(all, <-one) {
		if !errors.Is(err, cause) || errors.Is(err, redis.ErrReplicas) {
			t.Errorf("%v, want %v", err, cause)
		}
	}
	srv.Resume() // now the connections write what they have learned of the replicas
	<-answered
}

// renewals returns how many scripts a server has run that it knew, and whether a client waits
// for replicas.
func renewals(ctx context.Context, c *goredis.Client) (n int, waits bool) {
	info := c.Info(ctx, "everything").Val()
	_, calls, _ := strings.Cut(info, "cmdstat_evalsha:calls=")
	_, err := fmt.Sscanf(calls, "%d,", &n)
	return n, err != nil || !strings.Contains(info, "blocked_clients:0")
}

// TestConfirmationSentTwice: a waiter whose grant is confirmed when its connection breaks gets it. How many replicas have
// acknowledged a request that was sent again is not known, so the confirmation is repeated.
func TestConfirmationSentTwice(t *testing.T) {
	t.Parallel()
	primary, replica := testbed.Redis(t), testbed.Redis(t)
	follow(t, replica, primary)
	n := &delays{}
	client := goredis.NewClient(&goredis.Options{Addr: primary.Addr(), ReadTimeout: time.Second, Dialer: n.dial, MaintNotificationsConfig: quiet})
	t.Cleanup(func() { _ = client.Close() })
	d, err := redis.New(client, redis.WithReplicas(1, 500*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	other := openAt(t, primary.URL())
	holder := driver.Request{Name: newName(), ID: newName(), TTL: time.Minute}
	if _, err := other.Acquire(t.Context(), holder); err != nil {
		t.Fatal(err)
	}
	r := driver.Request{Name: holder.Name, ID: newName(), TTL: 61234 * time.Millisecond, Wait: true}
	r.Joined = func() {
		n.next("61234") // with which the grant is confirmed
		if err := other.Release(t.Context(), holder.Hold(0)); err != nil {
			t.Error(err)
		}
	}
	if _, err := d.Acquire(t.Context(), r); err != nil {
		t.Error(err)
	}
	n.deliver(t)
}
