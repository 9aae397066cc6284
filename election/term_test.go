package election_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/memorytest"
)

// When StepDown returns, the contexts of the term have ended, and the cause is StepDown, not
// the release that follows. The same is true of a context that is made afterwards.
func TestCauseOfTheEnd(t *testing.T) {
	l, _ := memorytest.New(t).Join()
	e := candidate(t, l)
	for range 100 {
		term, err := e.Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := term.Context(t.Context())
		if err := term.StepDown(t.Context()); err != nil {
			t.Fatal(err)
		}
		for what, ctx := range map[string]context.Context{"before": before, "after": term.Context(t.Context())} {
			if cause := context.Cause(ctx); !errors.Is(cause, election.ErrSteppedDown) {
				t.Fatalf("a context that was made %s StepDown: %v", what, cause)
			}
		}
	}
}

// A leader whose observer panics as it steps down is not announced any more.
func TestPanicAtStepDown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := memorytest.New(t)
		l, _ := b.Join(locker.WithObserver(func(_ context.Context, e locker.Event) {
			if e.Kind == locker.EventReleased && e.Name == "e" {
				panic("observer")
			}
		}))
		term, err := candidate(t, l).Campaign(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // it is announced
		panicked := true
		func() {
			defer func() { _ = recover() }()
			_ = term.StepDown(t.Context())
			panicked = false
		}()
		time.Sleep(time.Second)
		if names, err := b.Space.List(t.Context()); !panicked || err != nil || len(names) != 0 {
			t.Errorf("panicked: %t; left: %q, %v", panicked, names, err)
		}
	})
}

// meddler is a caller's context whose method calls a function, once.
type meddler struct {
	context.Context
	f *atomic.Pointer[func()]
}

func (m meddler) Value(key any) any {
	if f := m.f.Swap(nil); f != nil {
		(*f)()
	}
	return m.Context.Value(key)
}

// A caller's context that blocks, or calls StepDown itself, holds up no end of a term.
func TestMeddlingContext(t *testing.T) {
	for name, meddle := range map[string]func(*election.Term, <-chan struct{}){
		"blocks":   func(_ *election.Term, end <-chan struct{}) { <-end },
		"StepDown": func(term *election.Term, _ <-chan struct{}) { _ = term.StepDown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := memorytest.New(t).Join()
			end := make(chan struct{})
			defer close(end)
			done := make(chan error, 1)
			go func() {
				done <- candidate(t, l).Run(t.Context(), func(_ context.Context, term *election.Term) error {
					base, cancel := context.WithCancel(context.Background())
					defer cancel()
					m := meddler{base, new(atomic.Pointer[func()])}
					_ = term.Context(m)
					f := func() { meddle(term, end) }
					m.f.Store(&f)
					go func() { _ = term.StepDown(context.Background()) }()
					<-term.Done()
					return election.ErrResign
				})
			}()
			select {
			case err := <-done:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(10 * time.Second):
				t.Error("Run has not come back ten seconds after the function has")
			}
		})
	}
}

// The contexts of a term that was ended by StepDown have that cause, though the function
// returns at the same moment.
func TestCauseOfAStepDown(t *testing.T) {
	for range 5 {
		l, _ := memorytest.New(t).Join()
		ctxs := make([]context.Context, 200)
		err := candidate(t, l).Run(t.Context(), func(_ context.Context, term *election.Term) error {
			for i := range ctxs {
				ctxs[i] = term.Context(t.Context())
			}
			go func() { _ = term.StepDown(t.Context()) }()
			<-term.Done()
			return election.ErrResign
		})
		if err != nil {
			t.Error(err)
		}
		for _, ctx := range ctxs {
			if cause := context.Cause(ctx); !errors.Is(cause, election.ErrSteppedDown) {
				t.Fatalf("a context ended with the cause %v", cause)
			}
		}
	}
}
