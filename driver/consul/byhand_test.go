package consul_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/hashicorp/consul/api"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// byHand is what an operator may do to a ticket: its key is unlocked or deleted, or its
// session destroyed.
var byHand = map[string]func(t *testing.T, admin *api.Client, p *api.KVPair){
	"unlocked": unlock,
	"deleted": func(t *testing.T, admin *api.Client, p *api.KVPair) {
		if _, err := admin.KV().Delete(p.Key, nil); err != nil {
			t.Fatal(err)
		}
	},
	"destroyed": func(t *testing.T, admin *api.Client, p *api.KVPair) { destroy(t, admin, p.Session) },
}

func unlock(t *testing.T, admin *api.Client, p *api.KVPair) {
	t.Helper()
	if ok, _, err := admin.KV().Release(&api.KVPair{Key: p.Key, Session: p.Session, Value: p.Value}, nil); err != nil || !ok {
		t.Fatalf("unlock %q: %v, %v", p.Key, ok, err)
	}
}

// keyOf returns the pair of a ticket.
func keyOf(t *testing.T, admin *api.Client, h driver.Hold) *api.KVPair {
	t.Helper()
	for _, p := range keysOf(t, admin, h.Name) {
		if p.CreateIndex == h.Token {
			return p
		}
	}
	t.Fatalf("ticket %d is not in the queue", h.Token)
	return nil
}

func waits(name string) driver.Request {
	r := request(name)
	r.Wait = true
	return r
}

// A holder's ticket is ended by hand, and the next is granted. The holder's renewal finds
// out, and its process asks again: it waits, and gets a larger token.
func TestHolderEndedByHand(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	for what, act := range byHand {
		t.Run(what, func(t *testing.T) {
			a, b := first(counted(t, addr)), first(counted(t, addr))
			old := get(t, a, waits(t.Name()))
			next := waiting(t, b, t.Name())
			act(t, admin, keyOf(t, admin, old))
			h := <-next
			if err := a.Renew(t.Context(), old, 15*time.Second); !errors.Is(err, driver.ErrLost) {
				t.Errorf("renewal: %v, want ErrLost", err)
			}
			again := waiting(t, a, t.Name())
			drop(t, b, h)
			g := <-again
			if g.Token <= h.Token {
				t.Errorf("token %d after %d", g.Token, h.Token)
			}
			if keys := keysOf(t, admin, t.Name()); len(keys) != 1 {
				t.Errorf("%d keys, want that of the holder", len(keys))
			}
			drop(t, a, g)
		})
	}
}

// A holder's ticket is unlocked by hand, and the next is granted, before the holder
// releases it. The release says that the lock was lost, and leaves nothing.
func TestReleaseAfterUnlock(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	a, b := first(counted(t, addr)), first(counted(t, addr))
	old := get(t, a, waits(t.Name()))
	unlock(t, admin, keyOf(t, admin, old))
	h := get(t, b, waits(t.Name()))
	if err := a.Release(t.Context(), old); !errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v, want ErrLost", err)
	}
	drop(t, b, h)
	if keys := keysOf(t, admin, t.Name()); len(keys) > 0 {
		t.Errorf("%d keys are left", len(keys))
	}
}

// A process tries again after its ticket was unlocked by hand, and nobody else has come.
func TestTryAfterUnlock(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	d := first(counted(t, addr))
	old := get(t, d, request(t.Name()))
	unlock(t, admin, keyOf(t, admin, old))
	if err := d.Renew(t.Context(), old, 15*time.Second); !errors.Is(err, driver.ErrLost) {
		t.Errorf("renewal: %v, want ErrLost", err)
	}
	h := get(t, d, request(t.Name()))
	if h.Token <= old.Token {
		t.Errorf("token %d after %d", h.Token, old.Token)
	}
	drop(t, d, h)
	if keys := keysOf(t, admin, t.Name()); len(keys) > 0 {
		t.Errorf("%d keys are left", len(keys))
	}
}

// A waiter's ticket is ended by hand, with or without that of the holder. When the holder
// has gone, the waiter is not granted beside the one behind it.
func TestWaiterEndedByHand(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	for what, act := range byHand {
		for _, within := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s within %v", what, within), func(t *testing.T) {
				a := first(counted(t, addr))
				holder, h := waitFor(t, a, addr, within)
				r := waits(t.Name())
				joined, ended := make(chan struct{}), make(chan error, 1)
				r.Joined = func() { close(joined) }
				ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
				defer cancel()
				go func() {
					_, err := a.Acquire(ctx, r)
					ended <- err
				}()
				<-joined
				behind := waiting(t, first(counted(t, addr)), t.Name())
				var p *api.KVPair
				for _, q := range keysOf(t, admin, t.Name()) {
					if q.CreateIndex > h.Token && (p == nil || q.CreateIndex < p.CreateIndex) {
						p = q
					}
				}
				act(t, admin, p)
				if err := holder.Release(t.Context(), h); err != nil && !(within && what == "destroyed") {
					t.Fatal(err)
				}
				<-behind
				if err := <-ended; !errors.Is(err, driver.ErrLost) {
					t.Errorf("the waiter got %v, want ErrLost", err)
				}
			})
		}
	}
}

// waitFor makes a holder, in the process of d or another.
func waitFor(t *testing.T, d *consul.Driver, addr string, within bool) (*consul.Driver, driver.Hold) {
	if !within {
		d = first(counted(t, addr))
	}
	return d, get(t, d, waits(t.Name()))
}

// Somebody deletes all keys of a queue: none of its waiters is granted.
func TestQueueDeletedByHand(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	holder := first(counted(t, addr))
	get(t, holder, waits(t.Name()))
	const waiters = 3
	ended := make(chan error, waiters)
	for range waiters {
		d, r, joined := first(counted(t, addr)), waits(t.Name()), make(chan struct{})
		r.Joined = func() { close(joined) }
		go func() {
			_, err := d.Acquire(t.Context(), r)
			ended <- err
		}()
		<-joined
	}
	if _, err := admin.KV().DeleteTree(prefixOf(t)+"/~queue/", nil); err != nil {
		t.Fatal(err)
	}
	for range waiters {
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("a waiter got %v, want ErrLost", err)
		}
	}
}

// The answer to the creation of a ticket is lost, and its key is unlocked by hand before
// the ticket is released. Nothing is left of it, and its process gets a larger token.
func TestUnlockedBeforeAnswer(t *testing.T) {
	t.Parallel()
	addr := testbed.SharedConsul(t).Addr()
	admin := newClient(t, addr)
	d, w := tamper(t, addr)
	drop(t, d, get(t, d, waits(t.Name()))) // makes the session
	var old uint64
	lose := once(func(string) {
		p := keysOf(t, admin, t.Name())[0]
		old = p.CreateIndex
		unlock(t, admin, p)
	})
	w.with(func(r *http.Request) (*http.Response, error) {
		if !creates(body(r)) || old > 0 {
			return nil, nil
		}
		resp, err := w.RoundTripper.RoundTrip(r)
		if err == nil {
			_ = resp.Body.Close()
		}
		lose("")
		return nil, errors.New("the answer was lost")
	})
	r := waits(t.Name())
	if _, err := d.Acquire(t.Context(), r); err == nil || errors.Is(err, driver.ErrNoTicket) {
		t.Fatalf("acquire: %v, want an unknown outcome", err)
	}
	h := get(t, d, r)
	if h.Token <= old {
		t.Errorf("token %d after %d", h.Token, old)
	}
	drop(t, d, h)
	if keys := keysOf(t, admin, t.Name()); len(keys) > 0 {
		t.Errorf("%d keys are left", len(keys))
	}
}
