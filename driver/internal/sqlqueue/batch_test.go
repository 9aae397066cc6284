package sqlqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A batchStore takes a second for each request. It takes no ticket of the name "busy" in a batch, and by itself an hour.
type batchStore struct {
	fakeStore
	lost    bool // no batch is answered
	hangs   bool // no connection is there
	mu      sync.Mutex
	batches [][]BatchRequest
	alone   []string
}

func token(id string) (n uint64) {
	for _, c := range id {
		n = n*10 + uint64(c-'0') //nolint:gosec // a digit
	}
	return n
}

func (s *batchStore) Take(_ context.Context, _ int64, r driver.Request, until func() int64) (Answer, error) {
	if u := until(); u == 0 {
		return Answer{Sent: time.Now(), Result: Late, Now: storeTime}, nil
	}
	s.mu.Lock()
	s.alone = append(s.alone, r.ID)
	s.mu.Unlock()
	a := Answer{Sent: time.Now(), Result: Granted, Token: token(r.ID)}
	if r.Name == "busy" {
		time.Sleep(time.Hour)
	}
	time.Sleep(time.Second)
	return a, nil
}

func (s *batchStore) Batch(ctx context.Context, _ int64, requests func() []BatchRequest) (answers []BatchAnswer, err error) {
	if s.hangs {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	qs := requests()
	s.mu.Lock()
	s.batches = append(s.batches, qs)
	s.mu.Unlock()
	time.Sleep(50 * time.Millisecond)
	for _, q := range qs {
		a := BatchAnswer{Alone: q.Name == "busy", Removal: Removal{Found: true}}
		if a.Result = Granted; q.Until == 0 && !q.Remove {
			a.Result, a.Now = Late, storeTime
		}
		a.Token = token(q.ID)
		answers = append(answers, a)
	}
	if s.lost {
		return nil, errBroken
	}
	return answers, nil
}

// newBatching makes an engine that knows the clock of its store.
func newBatching(t *testing.T, s *batchStore) *Engine {
	e := New(Options{Store: s, Liveness: time.Minute, SweepEvery: 1000 * time.Hour})
	t.Cleanup(func() { _ = e.Close() })
	e.clock.set(storeTime)
	return e
}

// atOnce acquires n names at once.
func atOnce(ctx context.Context, e *Engine, n int) (errs []error, took []time.Duration) {
	errs, took = make([]error, n), make([]time.Duration, n)
	var group sync.WaitGroup
	begun := time.Now()
	for i := range n {
		group.Go(func() {
			r := driver.Request{Name: fmt.Sprint("n", i), ID: fmt.Sprint(i + 1), TTL: time.Hour}
			g, err := e.Acquire(ctx, r)
			if errs[i] = err; err == nil && g.Token != uint64(i+1) { //nolint:gosec // small
				errs[i] = fmt.Errorf("the token is %d", g.Token)
			}
			took[i] = time.Since(begun)
		})
		synctest.Wait()
	}
	group.Wait()
	return errs, took
}

// Requests that come while others are under way go together, and each gets its own answer.
func TestBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &batchStore{}
		errs, took := atOnce(t.Context(), newBatching(t, s), 40)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		sizes := []int{}
		for _, qs := range s.batches {
			sizes = append(sizes, len(qs))
		}
		if want := []int{1, 1, 16, 16, 4}; !slices.Equal(sizes, want) || len(s.alone) != 2 {
			t.Errorf("batches of %d, and %d alone; want %d, and 2", sizes, len(s.alone), want)
		}
		if last := slices.Max(took[2:]); last > time.Second {
			t.Errorf("those in batches took up to %v", last)
		}
	})
}

// What would have to wait in the database holds nobody up, whether it was sent by itself or was meant for a batch.
func TestBatchesAreNotHeldUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &batchStore{}
		e := newBatching(t, s)
		for i := range 5 {
			go func() {
				_, _ = e.Acquire(t.Context(), driver.Request{Name: "busy", ID: fmt.Sprint(100 + i), TTL: time.Hour})
			}()
			synctest.Wait()
		}
		errs, took := atOnce(t.Context(), e, 40)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if last := slices.Max(took); last > time.Second {
			t.Errorf("they took up to %v", last)
		}
		time.Sleep(2 * time.Hour)
	})
}

// While the connections of batches do not answer, requests are sent by themselves.
func TestBatchesThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		errs, took := atOnce(t.Context(), newBatching(t, &batchStore{hangs: true}), 40)
		if err := errors.Join(errs...); err != nil {
			t.Fatal(err)
		}
		if last := slices.Max(took); last > 2*time.Second {
			t.Errorf("they took up to %v", last)
		}
		time.Sleep(time.Minute) // the batches end
	})
}

// If the answer of a batch was lost, or its caller has left, each of its requests may have taken a ticket. One that was not
// sent has taken none.
func TestUnansweredBatch(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s := &batchStore{lost: !leaves}
			e := newBatching(t, s)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if leaves {
				time.AfterFunc(25*time.Millisecond, cancel)
			}
			errs, _ := atOnce(ctx, e, 10)
			for i, err := range errs {
				if i < 2 { // by themselves
					continue
				}
				sent := !leaves || i < 4 // in two batches, for which the others wait
				if err == nil || errors.Is(err, driver.ErrNoTicket) == sent {
					t.Errorf("leaves %v: request %d: %v", leaves, i, err)
				}
				if e.book.mayArrive(fmt.Sprint(i+1)) != sent {
					t.Errorf("leaves %v: request %d may arrive: %v", leaves, i, !sent)
				}
			}
			time.Sleep(time.Minute)
			if n := e.batches.running + e.batches.singles + len(e.batches.waiting) + len(e.batches.names); n != 0 {
				t.Errorf("%d are left", n)
			}
		})
	}
}
