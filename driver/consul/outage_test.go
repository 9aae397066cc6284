package consul_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/consul"
	"github.com/lockerproject/locker/internal/testbed"
)

// removeUntil repeats a release as the core does, in tries of a second with a backoff of
// up to 250 ms, until there is an answer.
func removeUntil(t *testing.T, d driver.Driver, h driver.Hold) <-chan time.Time {
	done := make(chan time.Time, 1)
	go func() {
		for delay := 20 * time.Millisecond; ; delay = min(2*delay, 250*time.Millisecond) {
			ctx, cancel := context.WithTimeout(context.Background(), time.Second)
			err := d.Release(ctx, h)
			cancel()
			if err == nil || errors.Is(err, driver.ErrLost) {
				done <- time.Now()
				return
			}
			time.Sleep(delay)
		}
	}()
	return done
}

// Close ends a request for the version, too, that is not answered.
func TestCloseEndsServerVersion(t *testing.T) {
	t.Parallel()
	d, w := tamper(t, "127.0.0.1:1")
	asked := make(chan struct{})
	w.with(func(r *http.Request) (*http.Response, error) {
		close(asked)
		<-r.Context().Done()
		return nil, r.Context().Err()
	})
	done := make(chan error, 1)
	go func() {
		_, err := d.ServerVersion(t.Context())
		done <- err
	}()
	<-asked
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	select {
	case err := <-done:
		if !errors.Is(err, driver.ErrClosed) {
			t.Errorf("%v, want ErrClosed", err)
		}
	case <-time.After(5 * time.Second):
		t.Error("it goes on after Close")
	}
}

// The store does not answer a release, a cancelled wait and an acquisition, while a
// lock that shares their session is renewed. Once the store can be reached again, the
// names are free within two seconds.
func TestUnansweredIsRemoved(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	for what, fault := range map[string]func(p *testbed.Proxy){
		"cut": (*testbed.Proxy).Cut, "refused": (*testbed.Proxy).Refuse,
		"all lost":     func(p *testbed.Proxy) { p.Lose() },
		"answers lost": func(p *testbed.Proxy) { p.DropReplies(true) },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			p := srv.Proxy(t)
			d := driverOver(t, p.Addr(), newTransport(t))
			other := first(counted(t, srv.Addr()))
			stays, held := get(t, d, request(t.Name()+"/stays")), get(t, d, request(t.Name()+"/held"))
			foreign := get(t, other, request(t.Name()+"/wait"))
			ctx, cancel := context.WithCancel(t.Context())
			queued, ended := make(chan struct{}), make(chan error, 1)
			w := request(t.Name() + "/wait")
			w.Wait, w.Joined = true, func() { close(queued) }
			go func() { _, err := d.Acquire(ctx, w); ended <- err }()
			<-queued

			fault(p)
			time.Sleep(50 * time.Millisecond)
			short, stop := context.WithTimeout(t.Context(), time.Second)
			defer stop()
			n := request(t.Name() + "/new")
			n.Wait = true
			if _, err := d.Acquire(short, n); err == nil {
				t.Fatal("acquired in an outage")
			}
			cancel()
			if err := <-ended; !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("a cancelled wait: %v", err)
			}
			var removed []<-chan time.Time
			for _, h := range []driver.Hold{held, w.Hold(0), n.Hold(0)} {
				removed = append(removed, removeUntil(t, d, h))
			}
			time.Sleep(2 * time.Second)
			drop(t, other, foreign)
			p.Heal()
			free := testbed.Elapsed(func() {
				for _, name := range []string{"/held", "/wait", "/new"} {
					r := request(t.Name() + name)
					r.Wait = true
					drop(t, other, get(t, other, r))
				}
			})
			t.Logf("free %v after the way was back", free)
			if free > 2*time.Second {
				t.Errorf("the names were free %v after the way was back", free)
			}
			for _, ch := range removed {
				<-ch
			}
			if err := d.Renew(t.Context(), stays, 15*time.Second); err != nil {
				t.Errorf("the lock that shares the session: %v", err)
			}
			drop(t, d, stays)
		})
	}
}

// Nobody renews the session of a wait that has ended, even if its ticket was not
// removed.
func TestEndedWaitIsNotRenewed(t *testing.T) {
	t.Parallel()
	srv := testbed.Consul(t, testbed.Args("-hcl", `session_ttl_min="1s"`))
	d, w := tamper(t, srv.Addr())
	_ = d
	var renewals atomic.Int64
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	w.with(func(r *http.Request) (*http.Response, error) {
		if strings.HasPrefix(r.URL.Path, "/v1/session/renew/") {
			renewals.Add(1)
			cancel()
		}
		return nil, nil
	})
	short := driverOver(t, srv.Addr(), w, consul.WithMinTTL(time.Second))
	other := first(counted(t, srv.Addr(), consul.WithMinTTL(time.Second)))
	held := get(t, other, request(t.Name()))
	r := request(t.Name())
	r.Wait, r.TTL = true, time.Second
	if _, err := short.Acquire(ctx, r); !errors.Is(err, context.Canceled) {
		t.Fatalf("a wait that ends with the first renewal of its session: %v", err)
	}
	time.Sleep(100 * time.Millisecond)
	before := renewals.Load()
	time.Sleep(time.Second)
	if n := renewals.Load() - before; n > 0 {
		t.Errorf("%d renewals in a second after the wait had ended", n)
	}
	drop(t, other, held)
}

// A release ends an acquisition of the same ticket that is under way. No request of
// the acquisition creates the ticket after that.
func TestReleaseEndsAcquire(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedConsul(t)
	for _, wait := range []bool{true, false} {
		d, w := tamper(t, srv.Addr())
		drop(t, d, get(t, d, request(t.Name())))
		held := make(chan func() (*http.Response, error), 1)
		begin := once(func(string) {})
		w.with(func(r *http.Request) (*http.Response, error) {
			text := body(r)
			if !creates(text) {
				return nil, nil
			}
			begin("")
			late := r.Clone(context.Background())
			late.Body = http.NoBody
			late.Body = newBody(text)
			select {
			case held <- func() (*http.Response, error) { return w.RoundTripper.RoundTrip(late) }:
				<-r.Context().Done()
				return nil, r.Context().Err()
			default:
				return nil, nil
			}
		})
		r := request(t.Name())
		r.Wait = wait
		ended := make(chan error, 1)
		go func() { _, err := d.Acquire(t.Context(), r); ended <- err }()
		send := <-held
		if err := d.Release(t.Context(), r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
			t.Errorf("release: %v", err)
		}
		if err := <-ended; !errors.Is(err, driver.ErrLost) {
			t.Errorf("the acquisition: %v, want ErrLost", err)
		}
		resp, err := send()
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if kvs := keysOf(t, newClient(t, srv.Addr()), t.Name()); resp.StatusCode != http.StatusConflict || len(kvs) > 0 {
			t.Errorf("the request, late: %s; keys %+v", resp.Status, kvs)
		}
	}
}
