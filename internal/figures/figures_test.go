package figures_test

import (
	"context"
	"errors"
	"math"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/internal/figures"
)

func TestJain(t *testing.T) {
	for _, c := range []struct {
		counts []int
		want   float64
	}{{[]int{5, 5, 5, 5}, 1}, {[]int{8, 0, 0, 0}, 0.25}, {[]int{1, 3}, 0.8}, {[]int{0, 0}, 0}, {nil, 0}} {
		if got := figures.Jain(c.counts); math.Abs(got-c.want) > 1e-9 {
			t.Errorf("the index of %v is %v, want %v", c.counts, got, c.want)
		}
	}
}

func TestPercentile(t *testing.T) {
	if got := figures.Percentile([]time.Duration{4, 1, 3, 2, 5}, 50); got != 3 {
		t.Errorf("the median is %d, want 3", got)
	}
	if got := figures.Percentile(nil, 99); got != 0 {
		t.Errorf("of nothing: %d", got)
	}
}

// hold is how long each client of these tests holds.
const hold = time.Millisecond

// under acquires a mutex.
func under(mu *sync.Mutex) func(context.Context, int) (func(context.Context) error, error) {
	return func(context.Context, int) (func(context.Context) error, error) {
		mu.Lock()
		return func(context.Context) error {
			time.Sleep(hold)
			mu.Unlock()
			return nil
		}, nil
	}
}

func TestRace(t *testing.T) {
	var mu sync.Mutex
	sent := int64(0)
	r := figures.Race{
		Clients: 3, Settle: time.Second, Length: time.Second, Acquire: under(&mu),
		Sent: func() int64 { sent += 7; return sent },
	}
	s, err := r.Run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, n := range s.Counts {
		total += n
	}
	if len(s.Counts) != 3 || total != s.Grants || s.Grants == 0 || len(s.HandOffs) > s.Grants || s.Took < r.Length || s.Sent != 7 {
		t.Errorf("%+v", s)
	}
}

// The grants before all are queued are not counted, and waiting for them ends.
func TestRaceSettles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		s, err := figures.Race{
			Clients: 2, Settle: 2 * time.Second, Length: time.Second,
			Acquire: func(ctx context.Context, me int) (func(context.Context) error, error) {
				if me == 1 || time.Since(begun) > 0 { // one grant in all
					<-ctx.Done()
					return nil, ctx.Err()
				}
				time.Sleep(hold)
				return func(context.Context) error { return nil }, nil
			},
		}.Run(t.Context())
		if err != nil || s.Grants != 0 || time.Since(begun) != 3*time.Second {
			t.Errorf("%+v, %v after %v", s, err, time.Since(begun))
		}
	})
}

func TestRaceFails(t *testing.T) {
	broken := errors.New("broken")
	r := figures.Race{Clients: 2, Settle: time.Hour, Length: time.Hour, Acquire: func(ctx context.Context, me int) (func(context.Context) error, error) {
		if me == 0 {
			return nil, broken
		}
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	if _, err := r.Run(t.Context()); !errors.Is(err, broken) {
		t.Errorf("the error of a client: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := r.Run(ctx); !errors.Is(err, context.Canceled) && !errors.Is(err, broken) {
		t.Errorf("under a context that has ended: %v", err)
	}
}

func TestRound(t *testing.T) {
	for d, want := range map[time.Duration]string{
		0: "0s", 7: "7ns", 123456: "123µs", 4_634_567: "4.63ms", -1_239_000_000: "-1.24s", 63*time.Second + 456*time.Millisecond: "1m3.5s",
		2*time.Hour + 5*time.Minute + 13*time.Second: "2h5m10s", math.MaxInt64: "2561111h6m40s",
	} {
		if got := figures.Round(d).String(); got != want {
			t.Errorf("%v is rounded to %s, want %s", d, got, want)
		}
	}
}
