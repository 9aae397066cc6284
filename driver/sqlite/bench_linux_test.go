package sqlite_test

import (
	"bufio"
	"context"
	"database/sql"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/testbed"
)

func init() { testbed.RegisterChild("grants", childGrants) }

// The same with flock(2), on a file that is opened for each lock, as flock(1) does. It gives
// neither a queue nor a token, nor a lease.
type flock string

func (f flock) acquire() (release func(), err error) {
	fd, err := unix.Open(string(f), unix.O_CREAT|unix.O_RDWR|unix.O_CLOEXEC, 0o600)
	if err != nil {
		return nil, err
	}
	for err = unix.EINTR; err == unix.EINTR; {
		err = unix.Flock(fd, unix.LOCK_EX)
	}
	return func() { _ = unix.Close(fd) }, err
}

type ours struct{ l *locker.Client }

func (o ours) acquire() (release func(), err error) {
	k, err := o.l.Acquire(ctx, "a")
	return func() { _ = k.Release(ctx) }, err
}

type locks interface {
	acquire() (release func(), err error)
}

func locksNamed(name, path string) locks {
	switch name {
	case "flock":
		return flock(path + ".lock")
	case "raw":
		return newRaw(path)
	}
	return ours{childLocker(path)}
}

// raw inserts a row and deletes it, in a database with the driver's settings: what SQLite itself takes for that.
type raw struct{ db *sql.DB }

func newRaw(path string) raw {
	db, err := sql.Open("sqlite", "file:"+path+".raw?_pragma=journal_mode(WAL)&_pragma=synchronous(NORMAL)")
	if err == nil {
		db.SetMaxOpenConns(1)
		_, err = db.ExecContext(ctx, "CREATE TABLE raw (name TEXT PRIMARY KEY)")
	}
	if err != nil {
		panic(err)
	}
	return raw{db}
}

func (r raw) acquire() (release func(), err error) {
	_, err = r.db.ExecContext(ctx, "INSERT INTO raw VALUES ('a')")
	return func() { _, _ = r.db.ExecContext(ctx, "DELETE FROM raw WHERE name = 'a'") }, err
}

// BenchmarkCycle takes and releases a free lock.
func BenchmarkCycle(b *testing.B) {
	for _, name := range []string{"sqlite", "raw", "flock"} {
		b.Run(name, func(b *testing.B) {
			l := locksNamed(name, newPath(b))
			defer closeLocks(l)
			for b.Loop() {
				release, err := l.acquire()
				if err != nil {
					b.Fatal(err)
				}
				release()
			}
		})
	}
}

func closeLocks(l locks) {
	switch l := l.(type) {
	case ours:
		_ = l.l.Close()
	case raw:
		_ = l.db.Close()
	}
}

// monotonic is a clock that processes share.
func monotonic() int64 {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts)
	return ts.Nano()
}

// childGrants acquires with each line that it reads, and prints when it was granted.
func childGrants() {
	l := locksNamed(os.Getenv("LOCKS"), os.Getenv("DB"))
	fmt.Println("ready")
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		release, err := l.acquire()
		at := monotonic()
		if err != nil {
			fmt.Println("error", err)
			return
		}
		fmt.Println("granted", at)
		release()
		fmt.Println("released")
	}
}

// BenchmarkHandOff measures from the release in one process to the grant in another.
func BenchmarkHandOff(b *testing.B) {
	for _, name := range []string{"sqlite", "flock"} {
		b.Run(name, func(b *testing.B) {
			path := newPath(b)
			p := testbed.Child(b, "grants", "LOCKS="+name, "DB="+path)
			p.WaitLine("ready")
			l := locksNamed(name, path)
			defer closeLocks(l)
			var took []time.Duration
			for b.Loop() {
				release, err := l.acquire()
				if err != nil {
					b.Fatal(err)
				}
				p.Send("go")
				time.Sleep(5 * time.Millisecond) // until it waits
				begun := monotonic()
				release()
				at, _ := strconv.ParseInt(p.WaitLine("granted "), 10, 64)
				took = append(took, time.Duration(at-begun))
				p.WaitLine("released")
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Microseconds()), "p50-us")
			b.ReportMetric(float64(took[len(took)*99/100].Microseconds()), "p99-us")
		})
	}
}

// BenchmarkIdle measures the processor time of a process with 100 waiters, in
// thousandths of a processor.
func BenchmarkIdle(b *testing.B) {
	path := newPath(b)
	holder := clientAt(b, path)
	waits, cancel := context.WithCancel(ctx)
	l := clientAt(b, path)
	for i := range 100 {
		name := fmt.Sprint("name-", i%10)
		_, _ = holder.TryAcquire(ctx, name)
		go func() { _, _ = l.Acquire(waits, name) }()
	}
	for b.Loop() {
		time.Sleep(time.Second) // until all wait
		before := processorTime()
		time.Sleep(4 * time.Second)
		b.ReportMetric(float64((processorTime()-before).Microseconds())/4000, "thousandths")
	}
	cancel()
}

func processorTime() time.Duration {
	var u unix.Rusage
	_ = unix.Getrusage(unix.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
