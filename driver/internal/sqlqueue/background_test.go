package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A fakeNotifier receives notices until its context ends, or fails.
type fakeNotifier struct {
	fails   []error // of the first ones
	opening time.Duration

	mu       sync.Mutex
	times    []time.Time
	channels []int64
	running  int
}

// began returns when it was called, and how often it is running.
func (n *fakeNotifier) began() (times []time.Time, running int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.times, n.running
}

func (n *fakeNotifier) count(running int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.running += running
}

func (n *fakeNotifier) Listen(ctx context.Context, process int64, in *Inbox) error {
	n.mu.Lock()
	call := len(n.times)
	n.times, n.channels = append(n.times, time.Now()), append(n.channels, Channel(process))
	n.mu.Unlock()
	n.count(1)
	defer n.count(-1)
	time.Sleep(n.opening)
	if call < len(n.fails) {
		return n.fails[call]
	}
	in.Ready()
	<-ctx.Done()
	return ctx.Err()
}

// The listener runs while something waits or, unless it listens to wait, is held, and a while longer.
func TestListensWhileItIsUsed(t *testing.T) {
	const listenFor = 30 * time.Second
	for _, toWait := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			n := &fakeNotifier{}
			e, s, _ := newWaiting(t, Options{Notifier: n, ListenToWait: toWait})
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			held := waits
			held.ID = "held"
			e.book.hold(&waiter{id: "held"}, 1)
			ended := acquiring(ctx, e, waits)
			runs := func() int { _, n := n.began(); return n }
			if runs() != 1 || !Receiving(e) {
				t.Errorf("%d run", runs())
			}
			pass(time.Hour)
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) {
				t.Errorf("the wait has ended with %v", err)
			}
			if pass(listenFor - time.Second); runs() != 1 {
				t.Error("it ends at once")
			}
			if pass(listenFor + 2*time.Second); (runs() == 0) != toWait {
				t.Errorf("to wait %t: something is held, and %d run", toWait, runs())
			}
			_ = e.Release(t.Context(), held.Hold(1))
			if pass(2 * listenFor); runs() != 0 || Receiving(e) {
				t.Error("it does not end")
			}
			s.take = func(int64) (Answer, error) {
				return Answer{Sent: time.Now(), Result: Granted, Token: 1}, nil
			}
			if _, err := e.Acquire(t.Context(), waits); err != nil {
				t.Fatal(err)
			}
			pass(time.Hour)
			want := 1
			if toWait {
				want = 0
			}
			if began, running := n.began(); running != want || len(began) != 1+want {
				t.Errorf("to wait %t: something is held, and %d of %d run", toWait, running, len(began))
			}
			for range 2 { // also while a request may arrive
				_ = e.Release(t.Context(), waits.Hold(1))
				pass(takeBound)
			}
			if pass(2 * listenFor); runs() != 0 {
				t.Error("it does not end after a release")
			}
			if slices.ContainsFunc(n.channels, func(c int64) bool { return c != n.channels[0] }) {
				t.Errorf("it listens on %v", n.channels)
			}
		})
	}
}

// A listener that fails begins again soon, later each time, and after a minute where there are no notices.
func TestListenerThatFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		n := &fakeNotifier{fails: []error{errBroken, errBroken, fmt.Errorf("a pooler: %w", ErrNoNotices)}}
		e, _, _ := newWaiting(t, Options{Notifier: n})
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ended := acquiring(ctx, e, waits)
		pass(2 * time.Minute)
		began, _ := n.began()
		if len(began) != 4 || !Receiving(e) {
			t.Fatalf("it began at %v", began)
		}
		for i, bounds := range [][2]time.Duration{{1, time.Second}, {1, 2 * time.Second}, {silentPause, silentPause}} {
			if d := began[i+1].Sub(began[i]); d < bounds[0] || d > bounds[1] {
				t.Errorf("%v after failure %d", d, i)
			}
		}
		signal(e.book.reconnect) // a grant was not noticed
		pass(5 * time.Second)
		if began, running := n.began(); len(began) != 5 || running != 1 {
			t.Errorf("%d of %d run", running, len(began))
		}
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Errorf("the wait has ended with %v", err)
		}
	})
}

// A grant waits for the listener as long as that takes no longer than a request, if the store wants that.
func TestListensBeforeAGrant(t *testing.T) {
	for _, first := range []bool{false, true} {
		for opening, want := range map[time.Duration]time.Duration{0: 0, 50 * time.Millisecond: 50 * time.Millisecond, time.Second: longestOpening} {
			synctest.Test(t, func(t *testing.T) {
				n := &fakeNotifier{opening: opening}
				e, s, _ := newWaiting(t, Options{Notifier: n, ListenFirst: first})
				s.take = func(int64) (Answer, error) {
					return Answer{Sent: time.Now(), Result: Granted, Token: 1}, nil
				}
				begun := time.Now()
				if _, err := e.Acquire(t.Context(), waits); err != nil {
					t.Fatal(err)
				}
				if !first {
					want = 0
				}
				if took := time.Since(begun); took != want {
					t.Errorf("first %t, opening %v: it took %v", first, opening, took)
				}
				pass(2 * time.Second)
			})
		}
	}
}

// One process sweeps, in its turn. If something is in use it sweeps again soon, some times, and if it did not get to the end others do.
func TestSweepsInTurn(t *testing.T) {
	const every = 45 * time.Second
	for what, c := range map[string]struct {
		left   time.Duration // of another one's turn
		turn   error
		busy   []int64 // of the sweeps
		fail   bool
		sweeps int
		done   bool
		next   time.Duration
	}{
		"others":   {left: time.Second, next: time.Second},
		"later":    {left: time.Hour, next: every},
		"down":     {turn: errBroken, next: every},
		"swept":    {busy: []int64{0}, sweeps: 1, done: true, next: every},
		"busy":     {busy: []int64{1, 1, 1}, sweeps: 3, done: true, next: every},
		"was busy": {busy: []int64{1, 0}, sweeps: 2, done: true, next: every},
		"fails":    {fail: true, sweeps: 3, next: every},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e, s, _ := newWaiting(t, Options{})
				sweeps, done := 0, time.Duration(-1)
				s.turn = func(life time.Duration, isDone bool) (time.Duration, error) {
					if isDone {
						done = life
					} else if life != sweepTurn {
						t.Errorf("a turn of %v", life)
					}
					return c.left, c.turn
				}
				s.sweep = func() (busy int64, err error) {
					if sweeps++; c.fail {
						return 0, errBroken
					}
					return c.busy[sweeps-1], nil
				}
				begun := time.Now()
				next := SweepInTurn(e)
				took := time.Since(begun)
				if sweeps != c.sweeps || next != c.next || (done >= 0) != c.done || c.done && done != every-took {
					t.Errorf("%d sweeps, the next after %v, done %v", sweeps, next, done)
				}
				if took > sweepTries*sweepAgain {
					t.Errorf("it took %v", took)
				}
			})
		})
	}
}

// The first ticket that was asked for begins the sweeps, and Close ends them.
func TestSweepsOnAndOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, s, _ := newWaiting(t, Options{})
		sweeps, turns := 0, 0
		s.sweep = func() (int64, error) { sweeps++; return 0, nil }
		s.turn = func(_ time.Duration, done bool) (time.Duration, error) {
			if !done {
				turns++
			}
			return 0, nil
		}
		if pass(time.Hour); turns > 0 {
			t.Error("a process that has asked for nothing sweeps")
		}
		s.take = func(int64) (Answer, error) { return Answer{}, errUnsent }
		_, _ = e.Acquire(t.Context(), waits)
		if pass(time.Hour); turns > 0 {
			t.Error("a process sweeps whose request was not answered")
		}
		s.take = func(int64) (Answer, error) { return Answer{Sent: time.Now(), Result: Refused}, nil }
		for range 3 {
			_, _ = e.Acquire(t.Context(), driver.Request{Name: "a", ID: "1", TTL: time.Minute})
		}
		pass(time.Hour)
		if turns < 72 || turns > 80 || sweeps < turns || sweeps > turns+1 { // one in ten sweeps at once
			t.Errorf("%d sweeps in %d turns", sweeps, turns)
		}
		_ = e.Close()
		turns = 0
		if pass(time.Hour); turns > 0 {
			t.Error("it sweeps after Close")
		}
	})
}

// classStore has errors of each class.
type classStore struct{ *fakeStore }

type classError Class

func (e classError) Error() string { return fmt.Sprint("class ", uint8(e)) }

func (classStore) Class(err error) (c Class) {
	var e classError
	if errors.As(err, &e) {
		c = Class(e)
	}
	return c
}

// What is sent again, how often, and what the error is at the end.
func TestRepeats(t *testing.T) {
	for _, c := range []struct {
		kind        Kind
		class       Class
		times       int // 0: until the context ends
		unavailable bool
	}{
		{Once, 0, 1, false},
		{Twice, 0, 1, false},
		{Twice, Undone, 1, false},
		{Twice, Undone | Down, 1, true},
		{Once, Passing, 1, false},
		{Once, Passing | Down, 1, true},
		{Twice, Passing, 1 + interruptions, false},
		{Creates, Passing | Down, 1 + interruptions, true},
		{Asks, Passing, 1 + interruptions, false},
		{Once, Passing | Undone, 0, false},
		{Twice, Passing | Undone | Down, 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			e := newEngine(t, Options{Store: classStore{&fakeStore{}}, Liveness: time.Second})
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			n := 0
			err := Do(ctx, e, c.kind, func() error { n++; return classError(c.class) })
			if c.times == 0 && n > 1+interruptions && n < 1000 && errors.Is(err, context.DeadlineExceeded) {
				n = 0
			}
			if n != c.times || !errors.As(err, new(classError)) || errors.Is(err, driver.ErrUnavailable) != c.unavailable {
				t.Errorf("%+v: sent %d times: %v", c, n, err)
			}
			time.AfterFunc(time.Second, func() { _ = e.Close() })
			if err := Do(t.Context(), e, Twice, func() error { return classError(Undone | Passing) }); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("closed meanwhile: %v", err)
			}
			if err := Do(t.Context(), e, Twice, func() error { t.Error("a request after Close"); return nil }); !errors.Is(err, driver.ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
	}
}

// What a request does where tables are missing.
func TestTablesThatAreMissing(t *testing.T) {
	edition := Edition{"1", "abc"}
	complete := Tables{Tickets: true, Comment: edition.Comment(), Complete: true}
	for what, c := range map[string]struct {
		kind    Kind
		used    bool
		create  bool
		tables  []Tables // the answers, the last one again and again
		created int
		took    time.Duration
		err     string // "": none
		sent    int
	}{
		"to create":           {kind: Creates, create: true, tables: make([]Tables, 1), created: 1, sent: 2},
		"to look":             {kind: Twice, create: true, tables: make([]Tables, 1), sent: 1},
		"may not create":      {kind: Creates, tables: make([]Tables, 1), err: "sql.Schema", sent: 1},
		"may not, and looks":  {kind: Twice, tables: make([]Tables, 1), err: "sql.Schema", sent: 1},
		"created meanwhile":   {kind: Twice, tables: []Tables{complete}, sent: 2},
		"vanished":            {kind: Creates, used: true, create: true, tables: make([]Tables, 1), err: "vanished", sent: 1},
		"another edition":     {kind: Creates, create: true, tables: []Tables{{Tickets: true, Comment: commentBegin + "2 (x)", Complete: true}}, err: "version 2 (x), and", sent: 1},
		"another program's":   {kind: Creates, create: true, tables: []Tables{{Tickets: true, Complete: true}}, err: "another program's", sent: 1},
		"in parts, to create": {kind: Creates, create: true, tables: []Tables{{Tickets: true, Comment: edition.Comment()}}, created: 1, sent: 2},
		"somebody creates":    {kind: Twice, create: true, tables: []Tables{{Tickets: true, Comment: edition.Comment()}}, took: 100 * time.Millisecond, sent: 2},
		"in parts, after use": {kind: Creates, used: true, create: true, tables: []Tables{{Tickets: true, Comment: edition.Comment()}}, took: 100 * time.Millisecond, sent: 2},
		"in parts, may not":   {kind: Creates, tables: []Tables{{Tickets: true, Comment: edition.Comment()}}, err: "sql.Schema", sent: 1},
		"again and again":     {kind: Creates, create: true, tables: []Tables{complete}, err: "sql.Schema", sent: -1},
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &fakeStore{}
				asked := 0
				s.tables = func() Tables {
					asked++
					return c.tables[min(asked, len(c.tables))-1]
				}
				e := newEngine(t, Options{Store: classStore{s}, Liveness: time.Second, Schema: Schema{Edition: edition, Package: "sql", Create: c.create}})
				e.used.Store(c.used)
				sent, begun := 0, time.Now()
				err := Do(t.Context(), e, c.kind, func() error {
					if sent++; sent == 1 || c.sent < 0 {
						return classError(Undone | Missing)
					}
					return nil
				})
				want := c.sent
				if want < 0 {
					want = 1 + creations
				}
				if sent != want || s.created != c.created || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
					t.Errorf("sent %d times, created %d times: %v", sent, s.created, err)
				}
				if took := time.Since(begun); took != c.took {
					t.Errorf("it took %v", took)
				}
				if e.used.Load() != (c.used || sent > 1 && err == nil) {
					t.Error("used:", e.used.Load())
				}
			})
		})
	}
}

// Why tables that are missing could not be created.
func TestTablesThatCannotBeCreated(t *testing.T) {
	for _, c := range []struct {
		pkg               string
		looking, creating error
		want              string
		not               string
	}{
		{"sql", nil, classError(Undone), "could not be created: class 1; create them", ""},
		{"sql", nil, classError(Undone | Down), "class 5", "create them"}, // there may be the right
		{"sql", classError(Undone), nil, "class 1", "create them"},
		{"", nil, classError(Undone), "class 1", "create them"},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeStore{looking: c.looking, creating: c.creating, tables: func() (t Tables) { return t }}
			e := newEngine(t, Options{Store: classStore{s}, Liveness: time.Second, Schema: Schema{Package: c.pkg, Create: true}})
			err := Do(t.Context(), e, Creates, func() error { return classError(Undone | Missing) })
			if err == nil || !strings.Contains(err.Error(), c.want) || c.not != "" && strings.Contains(err.Error(), c.not) {
				t.Errorf("%+v: %v", c, err)
			}
		})
	}
}

// What asks for no table says nothing about them.
func TestAsksForNoTable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := newEngine(t, Options{Store: classStore{&fakeStore{}}, Liveness: time.Second})
		for _, kind := range []Kind{Asks, Once} {
			if err := Do(t.Context(), e, kind, func() error { return nil }); err != nil || e.used.Load() != (kind == Once) {
				t.Errorf("kind %d: used %t, %v", kind, e.used.Load(), err)
			}
		}
	})
}
