package election_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/election"
	"github.com/lockerproject/locker/internal/testbed"
	"github.com/lockerproject/locker/internal/testmain"
)

func TestMain(m *testing.M) {
	testbed.RegisterChild("candidate", childCampaigns)
	testmain.Run(m)
}

func candidate(t *testing.T, l locker.Locker, opts ...election.Option) *election.Election {
	t.Helper()
	e, err := election.New(l, "e", opts...)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// running runs a candidate until the test ends, or until it is stopped.
func running(t *testing.T, e *election.Election, lead func(context.Context, *election.Term) error) (stop func() error) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	var group sync.WaitGroup
	group.Go(func() { err = e.Run(ctx, lead) })
	stop = func() error {
		cancel()
		group.Wait()
		return err
	}
	t.Cleanup(func() { _ = stop() })
	return stop
}

// untilEnd leads as long as the leadership lasts.
func untilEnd(ctx context.Context, _ *election.Term) error {
	<-ctx.Done()
	return nil
}

// history records what happened, with the time since it was made.
type history struct {
	begun time.Time
	mu    sync.Mutex
	lines []string
}

func newHistory() *history { return &history{begun: time.Now()} }

func (h *history) add(format string, args ...any) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lines = append(h.lines, fmt.Sprintf("%v: ", time.Since(h.begun))+fmt.Sprintf(format, args...))
}

func (h *history) all() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return append([]string(nil), h.lines...)
}

// eventually waits until f returns nil, in real time.
func eventually(t *testing.T, f func() error) {
	t.Helper()
	for begun := time.Now(); ; time.Sleep(5 * time.Millisecond) {
		err := f()
		if err == nil {
			return
		}
		if time.Since(begun) > 20*time.Second {
			t.Fatal(err)
		}
	}
}
