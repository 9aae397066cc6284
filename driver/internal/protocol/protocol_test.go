package protocol_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func newCheck() *protocol.Check {
	return protocol.New("1", "the key locker:protocol", "delete it")
}

// One answer is enough for all callers, however many come at once.
func TestAsksOnce(t *testing.T) {
	c := newCheck()
	var asked atomic.Int32
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			err := c.Do(t.Context(), func(context.Context) (string, error) {
				asked.Add(1)
				return c.Own(), nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := asked.Load(); n != 1 {
		t.Errorf("asked %d times", n)
	}
}

// The store is asked again if it has not answered, or has another version or none.
func TestAsksUntilAnswered(t *testing.T) {
	c := newCheck()
	say := func(found string, err error) error {
		return c.Do(t.Context(), func(context.Context) (string, error) { return found, err })
	}
	down := errors.New("down")
	if err := say("", down); !errors.Is(err, down) {
		t.Error(err)
	}
	if err := say("", nil); err != nil {
		t.Error(err)
	}
	err := say("2"+strings.Repeat("x", 1000), nil)
	var wrong *protocol.Mismatch
	if !errors.As(err, &wrong) || errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrLost) || len(err.Error()) > 500 {
		t.Fatal(err)
	}
	for _, part := range []string{"locker:protocol", `"2x`, `"1"`, "delete it", "another prefix"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("%v: want it to say %q", err, part)
		}
	}
	if err := say("1", nil); err != nil {
		t.Error(err)
	}
	if err := say("2", nil); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

// A caller that waits while another one asks gives up when its context ends.
func TestGivesUp(t *testing.T) {
	c := newCheck()
	begun, end := make(chan struct{}), make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		_ = c.Do(t.Context(), func(context.Context) (string, error) {
			close(begun)
			<-end
			return "1", nil
		})
	})
	<-begun
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Do(ctx, nil); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	close(end)
	wg.Wait()
}

// The request of the first caller is lost, for example with its connection. Others do not wait for its end.
func TestOneHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = c.Do(ctx, func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		}()
		synctest.Wait()
		patient, end := context.WithTimeout(t.Context(), 10*time.Second)
		defer end()
		begun := time.Now()
		err := c.Do(patient, func(context.Context) (string, error) { return c.Own(), nil })
		if took := time.Since(begun); err != nil || took > 2*time.Second {
			t.Errorf("%v after %v, want an answer within two seconds", err, took)
		}
		cancel()
	})
}

// So it is if none of them has a second: it counts from when the request that hangs was sent.
func TestOneHangsForShortCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			_ = c.Do(ctx, func(ctx context.Context) (string, error) {
				<-ctx.Done()
				return "", ctx.Err()
			})
		}()
		synctest.Wait()
		begun := time.Now()
		for {
			short, end := context.WithTimeout(t.Context(), 300*time.Millisecond)
			err := c.Do(short, func(context.Context) (string, error) { return c.Own(), nil })
			end()
			if err == nil {
				break
			}
			if took := time.Since(begun); took > 2*time.Second {
				t.Fatalf("%v after %v, want an answer within two seconds", err, took)
			}
		}
		cancel()
	})
}

// No request is answered. The callers do not all ask at once then: there is one more request a second.
func TestAllHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCheck()
		ctx, cancel := context.WithCancel(t.Context())
		var asked atomic.Int32
		for range 50 {
			go func() {
				_ = c.Do(ctx, func(ctx context.Context) (string, error) {
					asked.Add(1)
					<-ctx.Done()
					return "", ctx.Err()
				})
			}()
		}
		time.Sleep(1500 * time.Millisecond)
		if n := asked.Load(); n != 2 {
			t.Errorf("%d requests after 1.5 s, want 2", n)
		}
		cancel()
	})
}
