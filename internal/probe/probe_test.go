package probe_test

import (
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/internal/probe"
)

// What the store takes longer is seen, before and at the end of what is measured; what
// is measured is not.
func TestStall(t *testing.T) {
	const answer, length, halt = time.Millisecond, 200 * time.Millisecond, 70 * time.Millisecond
	for name, c := range map[string]struct{ from, want time.Duration }{
		"none":        {time.Hour, answer},
		"in between":  {50 * time.Millisecond, halt},
		"at the end":  {170 * time.Millisecond, length - 170*time.Millisecond},
		"before that": {-halt, answer},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				var asked atomic.Int64
				ask := func() {
					asked.Add(1)
					time.Sleep(answer)
					if now := time.Since(begun); now >= c.from && now < c.from+halt {
						time.Sleep(c.from + halt - now)
					}
				}
				got := probe.Stall(ask, func() { time.Sleep(length) })
				if got < c.want-6*time.Millisecond || got > c.want+6*time.Millisecond {
					t.Errorf("a stall of %v, want about %v", got, c.want)
				}
				if asked.Load() < 10 {
					t.Errorf("%d requests in %v", asked.Load(), length)
				}
			})
		})
	}
}

// The probe ends with the goroutine that measures.
func TestStallPanics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		defer func() { _ = recover() }()
		probe.Stall(func() {}, func() { panic("failed") })
	})
}
