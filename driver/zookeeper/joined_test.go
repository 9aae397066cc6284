package zookeeper

import (
	"testing"
	"testing/synctest"

	"github.com/lockerproject/locker/driver"
)

// TestPanicInJoined: an observer that panics does so in the goroutine that calls Acquire.
func TestPanicInJoined(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &waiter{d: &Driver{}, t: &ticket{gone: make(chan struct{})}, r: driver.Request{Joined: func() { panic("the observer's") }}}
		w.queued()
		<-w.broken
		<-w.joined
		if w.panicked != "the observer's" {
			t.Errorf("panicked with %v", w.panicked)
		}
	})
}
