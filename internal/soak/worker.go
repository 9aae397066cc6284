//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/lockerproject/locker"
	_ "github.com/lockerproject/locker/driver/all" // stores are named by URLs
	"github.com/lockerproject/locker/internal/retry"
)

// solo is the prefix of names that one goroutine uses alone.
const solo = "solo/"

// taskVariable has the task of a worker process, as JSON.
const taskVariable = "LOCKER_SOAK_TASK"

// A task is what a worker does until its life is over.
type task struct {
	ID      string
	URL     string
	Seed    uint64
	Threads int
	Groups  int // of names that all workers share
	TTLs    []time.Duration
	Life    time.Duration
	Log     string // file for standard error
}

// names are a group of those that all workers share: more workers have more groups.
var names = []struct {
	name    string
	permits int
}{{"a", 0}, {"b", 0}, {"c", 0}, {"d", 0}, {"permits/a", 3}, {"permits/b", 2}}

// inGroup returns one of names in the group i.
func inGroup(name string, i int) string {
	return fmt.Sprintf("%s%d", name, i)
}

// tick is the time between two looks at a lock that is held; every reports-th look is reported.
const (
	tick    = 20 * time.Millisecond
	reports = 3
)

// runWorker is the program of a worker process. It ends early when its standard input
// says so, or is closed.
func runWorker() {
	var t task
	if err := json.Unmarshal([]byte(os.Getenv(taskVariable)), &t); err != nil {
		fmt.Fprintln(os.Stderr, "soak: the worker has no task:", err)
		os.Exit(2)
	}
	// Clients of stores log each connection that fails; and the runtime a panic.
	if log, err := os.OpenFile(t.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644); err == nil {
		_ = unix.Dup3(int(log.Fd()), 2, 0)
	}
	ctx, stop := context.WithTimeout(context.Background(), t.Life)
	defer stop()
	go func() {
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n')
		stop()
	}()
	if err := t.run(ctx, os.Stdout, func(o ...locker.ClientOption) (*locker.Client, error) {
		return locker.Open(ctx, t.URL, o...)
	}); err != nil {
		fmt.Fprintln(os.Stderr, "soak: worker:", err)
	}
}

// A worker uses one Client from several goroutines.
type worker struct {
	task
	client *locker.Client
	holds  atomic.Int64
	fixed  sync.Map // the leases that are not renewed, by ticket

	mu  sync.Mutex
	out *json.Encoder
}

// A ticket is a name with its token.
type ticket struct {
	name  string
	token uint64
}

// run works until ctx ends, and writes events to out.
func (t task) run(ctx context.Context, out io.Writer, open func(...locker.ClientOption) (*locker.Client, error)) error {
	w := &worker{task: t, out: json.NewEncoder(out)}
	c, err := open(locker.WithObserver(func(_ context.Context, e locker.Event) {
		if e.Kind == locker.EventLost {
			why := fmt.Sprint(e.Err)
			if _, fixed := w.fixed.LoadAndDelete(ticket{e.Name, e.Token}); fixed {
				why = "held beyond a lease that is not renewed"
			}
			w.report(event{Kind: reason, Name: e.Name, At: now(), Why: why})
		}
	}))
	if err != nil {
		return err
	}
	w.client = c
	var all sync.WaitGroup
	for i := range t.Threads {
		all.Go(func() { w.thread(ctx, i) })
	}
	all.Wait()
	return c.Close()
}

func (w *worker) report(e event) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_ = w.out.Encode(e) // the coordinator is gone if it fails, and then this process ends
}

// thread takes locks, one after the other.
func (w *worker) thread(ctx context.Context, i int) {
	r := rand.New(rand.NewPCG(w.Seed, uint64(i)))
	own := owned{prefix: fmt.Sprintf("%s%s/%d/", solo, w.ID, i)}
	for ctx.Err() == nil {
		if r.IntN(8) == 0 {
			w.tryOwn(ctx, r, &own)
		} else {
			w.contend(ctx, r)
		}
		retry.Sleep(ctx, time.Duration(r.Int64N(int64(20*time.Millisecond))), nil)
	}
}

// contend acquires a name that all workers use, in one of all ways.
func (w *worker) contend(ctx context.Context, r *rand.Rand) {
	pick := names[r.IntN(len(names))]
	e := event{Name: inGroup(pick.name, r.IntN(w.Groups)), Wait: true}
	ttl := w.TTLs[r.IntN(len(w.TTLs))]
	opts := []locker.Option{locker.WithTTL(ttl)}
	switch {
	case r.IntN(8) == 0: // exclusive, also where others ask for permits
	case pick.permits > 0:
		e.Mode = pick.permits
		opts = append(opts, locker.Limit(pick.permits))
	case r.IntN(4) == 0:
		e.Mode = -1
		opts = append(opts, locker.Shared())
	}
	long := time.Duration(r.Int64N(int64(4 * time.Millisecond)))
	switch draw := r.IntN(1000); {
	case draw < 2: // beyond a lease
		long = ttl + time.Duration(r.Int64N(int64(ttl)/2))
	case draw < 50:
		long = time.Duration(r.Int64N(int64(200 * time.Millisecond)))
	}
	fixed := r.IntN(10) == 0
	if fixed {
		opts = append(opts, locker.WithoutRenewal())
	}
	limit := time.Minute
	if r.IntN(4) == 0 {
		limit = time.Duration(r.Int64N(int64(2 * time.Second)))
	}
	acquire := func() (*locker.Lock, error) {
		return w.client.Acquire(ctx, e.Name, append(opts, locker.WithWait(limit))...)
	}
	if r.IntN(5) == 0 {
		e.Wait = false
		acquire = func() (*locker.Lock, error) { return w.client.TryAcquire(ctx, e.Name, opts...) }
	}
	_ = w.hold(ctx, e, func() (*locker.Lock, error) {
		k, err := acquire()
		if err == nil && fixed {
			w.fixed.Store(ticket{e.Name, k.Token()}, true)
		}
		return k, err
	}, long)
}

// owned are names that one goroutine uses alone: the number of the present one, and its last token.
type owned struct {
	prefix string
	number int
	token  uint64
}

// tryOwn tries a name that only this goroutine has used, and only with success.
func (w *worker) tryOwn(ctx context.Context, r *rand.Rand, own *owned) {
	e := event{Name: fmt.Sprint(own.prefix, own.number)}
	ttl := w.TTLs[r.IntN(len(w.TTLs))]
	err := w.hold(ctx, e, func() (*locker.Lock, error) {
		k, err := w.client.TryAcquire(ctx, e.Name, locker.WithTTL(ttl))
		if err == nil {
			own.token = k.Token()
		}
		return k, err
	}, 0)
	if errors.Is(err, locker.ErrNotAcquired) {
		at := now()
		q, failed := w.client.Inspect(context.WithoutCancel(ctx), e.Name)
		w.report(event{Kind: broken, ID: w.ID, Name: e.Name, At: at, Why: fmt.Sprintf(
			"TryAcquire of %s, which nobody else uses: %v; token %d was released last; the queue: %+v, %v", e.Name, err, own.token, q, failed)})
	}
	if err != nil {
		own.number++ // something may be left
	}
}

// hold acquires a lock, looks at it for as long as is wanted or it lasts, and releases it.
func (w *worker) hold(ctx context.Context, e event, acquire func() (*locker.Lock, error), long time.Duration) error {
	e.From = now()
	k, err := acquire()
	e.At = now()
	if err != nil {
		if ctx.Err() == nil {
			why, known := refusal(err)
			e.Kind, e.Why = refused, why
			if !known {
				w.report(event{Kind: broken, Name: e.Name, At: e.At, Why: "an error that is no answer to an acquisition: " + e.Why})
			}
			w.report(e)
		}
		return err
	}
	e.ID, e.Token = fmt.Sprintf("%s/%d", w.ID, w.holds.Add(1)), k.Token()
	if k.Err() != nil {
		e.Kind = late
		w.report(e)
		return k.Release(context.WithoutCancel(ctx))
	}
	e.Kind = granted
	w.report(e)
	last, held := w.look(ctx, k, e, long)
	e.Kind, e.At = lost, last
	if held {
		e.Kind = released
	}
	if err = k.Release(context.WithoutCancel(ctx)); held {
		w.fixed.Delete(ticket{e.Name, e.Token})
	}
	w.report(e)
	return err
}

// A lease is what a worker looks at: a *locker.Lock.
type lease interface {
	Err() error
	Deadline() time.Time
}

// look returns when the lock was last seen to be held, and whether it still is.
func (w *worker) look(ctx context.Context, k lease, e event, long time.Duration) (last int64, held bool) {
	end := e.At + int64(long)
	e.Kind = alive
	for n := 1; ; n++ {
		until := k.Deadline()
		at, outlived := now(), time.Since(until) > tick
		if k.Err() != nil {
			return e.At, false
		}
		e.At = at
		if outlived && k.Deadline().Equal(until) {
			w.report(event{Kind: broken, ID: e.ID, Name: e.Name, At: at, Why: "a lock of " + e.Name + " has not ended after its deadline"})
		}
		if at >= end || ctx.Err() != nil {
			return e.At, true
		}
		if n%reports == 0 {
			w.report(e)
		}
		retry.Sleep(ctx, min(tick, time.Duration(end-at)), nil)
	}
}

// refusal names what an acquisition failed with, and whether it may: a store that fails is
// ErrUnavailable, whatever it says.
func refusal(err error) (why string, known bool) {
	for _, s := range []error{locker.ErrNotAcquired, locker.ErrUnavailable} {
		if errors.Is(err, s) {
			return s.Error(), true
		}
	}
	return kindOf(err.Error()), false
}
