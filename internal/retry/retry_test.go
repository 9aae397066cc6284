package retry_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

func TestBackoff(t *testing.T) {
	b := retry.Backoff{First: 20 * time.Millisecond, Most: 100 * time.Millisecond}
	for range 2 {
		for _, ms := range []int{20, 40, 80, 100, 100} {
			want := time.Duration(ms) * time.Millisecond
			if got := b.Next(); got > want || got < want*3/4-time.Microsecond {
				t.Errorf("a pause of %v, want %v less up to a quarter", got, want)
			}
		}
		b.Reset()
	}
}

func TestSleep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		stopped := make(chan struct{})
		close(stopped)
		for _, c := range []struct {
			ctx  context.Context
			stop <-chan struct{}
			want bool
		}{
			{t.Context(), nil, true},
			{t.Context(), make(chan struct{}), true},
			{ended, nil, false},
			{t.Context(), stopped, false},
		} {
			start := time.Now()
			got := retry.Sleep(c.ctx, time.Minute, c.stop)
			slept := map[bool]time.Duration{true: time.Minute}[got]
			if got != c.want || time.Since(start) != slept {
				t.Errorf("Sleep returned %v after %v, want %v", got, time.Since(start), c.want)
			}
		}
	})
}
