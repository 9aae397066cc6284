package kvqueue

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A release ends the Acquire of its ticket that is under way, whatever that waits for, and no ticket
// is there after both, nor comes to be.
func TestReleaseEndsAcquire(t *testing.T) {
	for _, what := range []string{"open", "keep", "look", "put"} {
		for _, answered := range []bool{false, true} {
			for _, wait := range []bool{true, false} {
				if what == "look" && wait {
					continue
				}
				inBubble(t, func(b *bed) {
					if what == "keep" {
						b.drop(b.e, b.get(b.e, request("a", "0")))
						time.Sleep(30*time.Second/freshPart + time.Second)
					}
					asked := false
					b.store.with(func(request, _ string, done bool) error {
						if request == what && done == answered {
							asked = true
							time.Sleep(time.Second) // it does not hear of the end of its context
						}
						return nil
					})
					r := request("a", "1")
					r.Wait = wait
					ended := make(chan error, 2)
					ctx, cancel := context.WithTimeout(b.Context(), time.Hour)
					defer cancel()
					for range 2 { // the second call is for the same ticket
						go func() {
							_, err := b.e.Acquire(ctx, r)
							ended <- err
						}()
						synctest.Wait()
					}
					if !asked {
						t.Fatalf("%s: nothing was asked for", what)
					}
					err := b.e.Release(b.Context(), r.Hold(0))
					if err != nil && !errors.Is(err, driver.ErrLost) {
						t.Errorf("%s, answered %t: release: %v", what, answered, err)
					}
					for range 2 {
						if err := <-ended; !errors.Is(err, driver.ErrLost) {
							t.Errorf("%s, answered %t: acquire: %v, want ErrLost", what, answered, err)
						}
					}
					if n := b.store.queued("a"); n != 0 {
						t.Errorf("%s, answered %t: %d tickets are queued after the release", what, answered, n)
					}
				})
			}
		}
	}
}

// A release of another name does not end it, and one whose context ends does not wait for it.
func TestReleaseOfAnother(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.with(func(what, _ string, done bool) error {
			if what == "open" && !done {
				time.Sleep(time.Minute)
			}
			return nil
		})
		ended := make(chan error, 1)
		go func() {
			_, err := b.e.Acquire(b.Context(), request("a", "1"))
			ended <- err
		}()
		synctest.Wait()
		if err := b.e.Release(b.Context(), driver.Hold{Name: "b", ID: "1"}); !errors.Is(err, driver.ErrLost) {
			t.Errorf("release of another name: %v, want ErrLost", err)
		}
		time.Sleep(time.Hour)
		if err := <-ended; err != nil {
			t.Errorf("acquire: %v", err)
		}
		ctx, cancel := context.WithTimeout(b.Context(), time.Second)
		defer cancel()
		again := request("a", "2")
		again.TTL = time.Minute // in a session of its own
		go func() {
			_, err := b.e.Acquire(b.Context(), again)
			ended <- err
		}()
		synctest.Wait()
		if err := b.e.Release(ctx, again.Hold(0)); !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, driver.ErrLost) {
			t.Errorf("release of what hangs: %v, want the end of its context", err)
		}
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("acquire: %v, want ErrLost", err)
		}
		b.drop(b.e, driver.Hold{Name: "a", ID: "1"})
	})
}

// The first request for a session hangs. The callers after it have less time than one waits for the
// answer to another; soon one of them asks for itself.
func TestShortPatience(t *testing.T) {
	for _, what := range []string{"open", "keep"} {
		inBubble(t, func(b *bed) {
			if what == "keep" {
				b.drop(b.e, b.get(b.e, request("a", "0")))
				time.Sleep(30*time.Second/freshPart + time.Second)
			}
			first := true
			b.store.with(func(asked, _ string, done bool) error {
				if asked == what && !done && first {
					first = false
					return errFakeHangs
				}
				return nil
			})
			ctx, cancel := context.WithTimeout(b.Context(), time.Minute)
			defer cancel()
			hung := make(chan error, 1)
			go func() {
				_, err := b.e.Acquire(ctx, request("first", "f"))
				hung <- err
			}()
			synctest.Wait()
			begun, r := time.Now(), request("a", "1")
			for {
				short, cancel := context.WithTimeout(b.Context(), 800*time.Millisecond)
				_, err := b.e.Acquire(short, r)
				cancel()
				if err == nil {
					break
				}
			}
			if took := time.Since(begun); took > tryBound+time.Second {
				t.Errorf("%s: granted after %v, want %v at most", what, took, tryBound+time.Second)
			}
			b.drop(b.e, r.Hold(0))
			cancel()
			if err := <-hung; err == nil {
				b.drop(b.e, driver.Hold{Name: "first", ID: "f"})
			}
		})
	}
}
