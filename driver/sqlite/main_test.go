package sqlite_test

import (
	"bufio"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

var ctx = context.Background()

func TestMain(m *testing.M) {
	testbed.RegisterChild("client", childClient)
	testbed.RegisterChild("count", childCount)
	testbed.RegisterChild("cycle", childCycle)
	testbed.RegisterChild("transaction", childTransaction)
	testbed.RegisterChild("open", childOpen)
	testbed.RegisterChild("read", childRead)
	_ = flag.Set("test.parallel", "8")    // they wait for leases to end, more than they compute; the command line may say otherwise
	testmain.RunWithin(m, 20*time.Second) // a driver whose disk hangs ends later
}

func newPath(tb testing.TB) string { tb.Helper(); return filepath.Join(tb.TempDir(), "locks.db") }

// openAt opens a driver that is closed with the test, and makes its database if there is none.
func openAt(tb testing.TB, path string, opts ...sqlite.Option) *sqlite.Driver {
	tb.Helper()
	d, err := sqlite.New(path, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { _ = d.Close() })
	if err := d.Make(); err != nil {
		tb.Fatal(err)
	}
	return d
}

// clientAt opens a Locker that is closed with the test.
func clientAt(tb testing.TB, path string, opts ...sqlite.Option) *locker.Client {
	tb.Helper()
	l := locker.New(openAt(tb, path, opts...))
	tb.Cleanup(func() { _ = l.Close() })
	return l
}

// within is a context that ends after a minute: nothing should take that long.
func within(tb testing.TB) context.Context {
	tb.Helper()
	c, cancel := context.WithTimeout(ctx, time.Minute)
	tb.Cleanup(cancel)
	return c
}

func acquire(tb testing.TB, l locker.Locker, name string, opts ...locker.Option) *locker.Lock {
	tb.Helper()
	k, err := l.Acquire(within(tb), name, opts...)
	if err != nil {
		tb.Fatal(err)
	}
	return k
}

// childOpen opens the file that the environment names, or says what is wrong and exits.
func childOpen() {
	d, err := sqlite.New(os.Getenv("DB"))
	if err == nil {
		err = errors.Join(d.Ping(ctx), d.Close())
	}
	fmt.Println("opened", err)
}

// childRead inspects a lock, and tries to take one.
func childRead() {
	d, err := sqlite.New(os.Getenv("DB"))
	if err != nil {
		fmt.Println("error", err)
		return
	}
	tickets, err := d.Inspect(ctx, "a")
	fmt.Println("inspect", len(tickets), err)
	_, err = d.Acquire(ctx, driver.Request{Name: "b", ID: "b", TTL: time.Minute})
	fmt.Println("acquire", err, errors.Is(err, driver.ErrUnavailable))
	fmt.Println("ping", d.Ping(ctx), d.Close())
}

func childLocker(path string) *locker.Client {
	d, err := sqlite.New(path)
	if err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
	return locker.New(d)
}

// childClient executes lines of its standard input: acquire NAME TTL, release.
func childClient() {
	l := childLocker(os.Getenv("DB"))
	var k *locker.Lock
	fmt.Println("ready")
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		var err error
		switch args := strings.Fields(s.Text()); args[0] {
		case "acquire":
			ttl, _ := time.ParseDuration(args[2])
			if k, err = l.Acquire(ctx, args[1], locker.WithTTL(ttl)); err != nil {
				fmt.Println("error", err)
				continue
			}
			fmt.Println("granted", k.Token())
			go func() { <-k.Done(); fmt.Println("ended", k.Err()) }()
		case "release":
			fmt.Println("released", k.Release(ctx))
		}
	}
}

// childCount adds 1 to the number in a file, from many goroutines.
func childCount() {
	l := childLocker(os.Getenv("DB"))
	goroutines, _ := strconv.Atoi(os.Getenv("GOROUTINES"))
	rounds, _ := strconv.Atoi(os.Getenv("ROUNDS"))
	fmt.Println("ready")
	_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
	var group sync.WaitGroup
	for range goroutines {
		group.Go(func() {
			for range rounds {
				if err := locker.Do(ctx, l, "counter", count); err != nil {
					fmt.Println("error", err)
				}
			}
		})
	}
	group.Wait()
	fmt.Println("done", l.Close())
}

func count(context.Context) error {
	file := os.Getenv("FILE")
	b, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(string(b))
	if err != nil {
		return fmt.Errorf("somebody else is writing: %w", err)
	}
	return os.WriteFile(file, []byte(strconv.Itoa(n+1)), 0o600)
}

// childCycle takes and releases locks, printing their tokens, until it is killed.
func childCycle() {
	l := childLocker(os.Getenv("DB"))
	for i := 0; ; i++ {
		k, err := l.Acquire(ctx, fmt.Sprint("cycle-", i%3), locker.WithTTL(30*time.Millisecond))
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("token", k.Token())
		_ = k.Release(ctx)
	}
}

// childTransaction holds the right to write until it is killed.
func childTransaction() {
	db := openDB(os.Getenv("DB"))
	c, err := db.Conn(ctx)
	if err == nil {
		_, err = c.ExecContext(ctx, "BEGIN IMMEDIATE")
	}
	fmt.Println("began", err)
	select {}
}

// awaitNotices waits until a driver that was used receives notices.
func awaitNotices(t *testing.T, d *sqlite.Driver) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !d.Receives(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("it receives no notices")
		}
	}
}
