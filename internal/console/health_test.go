package console

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
)

// versioned is a store that tells its version: another one each time that it is asked.
type versioned struct {
	fake
	asked atomic.Int64
}

func (v *versioned) ServerVersion(context.Context) (string, error) {
	return fmt.Sprint("Store ", v.asked.Add(1)), nil
}

// The version is asked for when the store answers at first, and again after an outage, in which
// it may have been replaced; not with each poll.
func TestVersionOfAStore(t *testing.T) {
	t.Parallel()
	src := new(versioned)
	b := newBed(t, Options{}, Store{"versioned", src})
	b.login()
	stream := b.stream()
	stream.hello()
	next := func(state string) status {
		t.Helper()
		return stream.change(func(c change) bool { return c.Store == 1 && c.Status.State == state }).Status
	}
	for range 3 {
		if s := next(up); s.Version != "Store 1" || s.At == 0 {
			t.Errorf("the store is up: %+v", s)
		}
	}
	src.set(errors.New("no answer"), "a")
	if s := next(down); s.Version != "Store 1" || s.Since < s.At || s.At == 0 || s.Error != "no answer" {
		t.Errorf("the store is down: %+v", s)
	}
	src.set(nil, "a")
	if s := next(up); s.Version != "Store 2" || s.Since != 0 {
		t.Errorf("the store is back: %+v", s)
	}
}
