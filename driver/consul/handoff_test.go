package consul_test

import (
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// handedOver waits for a grant, which must come within 100 ms from now, with some
// slack for a slow machine. A poll of a second is too slow.
func handedOver(t *testing.T, granted <-chan driver.Hold) (h driver.Hold) {
	t.Helper()
	if took := testbed.Elapsed(func() { h = <-granted }); took > 500*time.Millisecond {
		t.Errorf("granted %v after the release", took)
	}
	return h
}

func waiting(t *testing.T, d driver.Driver, name string) (granted <-chan driver.Hold) {
	t.Helper()
	r := request(name)
	r.Wait = true
	joined, grants := make(chan struct{}), make(chan driver.Hold, 1)
	r.Joined = func() { close(joined) }
	go func() {
		h := driver.Hold{}
		if g, err := d.Acquire(t.Context(), r); err != nil {
			t.Error(err)
		} else {
			h = r.Hold(g.Token)
		}
		grants <- h
	}()
	select {
	case <-joined:
	case <-time.After(5 * time.Second):
		t.Fatal("not queued")
	}
	return grants
}

// A waiter is queued behind a ticket of its own process, which is released before the
// answer arrives: the waiter does not wait for the ticket that has gone.
func TestHandOffBeforeAnswer(t *testing.T) {
	d, w := tamper(t, testbed.SharedConsul(t).Addr())
	r := request(t.Name())
	r.Wait = true
	h := get(t, d, r)
	w.with(func(r *http.Request) (*http.Response, error) {
		if !creates(body(r)) {
			return nil, nil
		}
		resp, err := w.RoundTripper.RoundTrip(r)
		drop(t, d, h)
		return resp, err
	})
	granted := waiting(t, d, t.Name())
	drop(t, d, handedOver(t, granted))
}

// The same for a queue that is read while a ticket is released.
func TestHandOffDuringRead(t *testing.T) {
	w := &tampered{RoundTripper: newTransport(t)}
	d := driverOver(t, testbed.SharedConsul(t).Addr(), w, consul.WithQueryWait(time.Second)) // after which the queue is read
	a := request(t.Name())
	a.Wait = true
	h := get(t, d, a)
	b := waiting(t, d, t.Name())
	c := waiting(t, d, t.Name())
	reading, released := make(chan struct{}), make(chan struct{})
	first := once(func(string) { close(reading); <-released })
	w.with(func(r *http.Request) (*http.Response, error) {
		if r.Method != http.MethodGet || !strings.Contains(r.URL.Path, t.Name()) || !r.URL.Query().Has("recurse") {
			return nil, nil
		}
		resp, err := w.RoundTripper.RoundTrip(r)
		first("")
		return resp, err
	})
	drop(t, d, h)
	h = <-b
	<-reading // the queue is being read for c, with b in the answer
	drop(t, d, h)
	close(released)
	drop(t, d, handedOver(t, c))
}
