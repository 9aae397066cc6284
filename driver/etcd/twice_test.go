package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/etcd"
	"github.com/lockerproject/locker/internal/testbed"
)

// afterPut makes a client that calls f with the error of each put of a ticket that was
// executed, and takes f's error for its answer.
func afterPut(t *testing.T, addr string, f func() error) *clientv3.Client {
	t.Helper()
	return dialed(t, []string{addr}, unary(func(_ context.Context, _ string, req, _ any, next func() error) error {
		err := next()
		if err == nil && isPut(req) {
			return f()
		}
		return err
	}))
}

// A proxy or a server answers a put, after it was executed, that its own time was over.
// The client sends it again. The ticket is queued once, with its own number, and blocks
// nobody after its release.
func TestClientRepeatsAPut(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		for _, wait := range []bool{true, false} {
			t.Run(fmt.Sprintf("%v, waits %v", code, wait), func(t *testing.T) {
				var armed atomic.Bool
				prefix := randomPrefix()
				d := newDriver(t, afterPut(t, srv.Addr(), func() error {
					if armed.Swap(false) {
						return status.Error(code, "upstream request timeout")
					}
					return nil
				}), withPrefix(prefix))
				other := acquire(t, d, request("other", "id-other", 30*time.Second)) // keeps the lease
				armed.Store(true)
				r := request("twice", "id-a", 30*time.Second)
				r.Wait = wait
				h := acquire(t, d, r)
				if armed.Load() {
					t.Fatal("the put was not repeated: the test tests nothing")
				}
				if err := d.Renew(t.Context(), h, 30*time.Second); err != nil {
					t.Errorf("renewal: %v", err)
				}
				q, err := d.Inspect(t.Context(), "twice")
				if err != nil || len(q) != 1 || q[0].Token != h.Token {
					t.Errorf("the queue is %+v, %v, want token %d alone", q, err, h.Token)
				}
				release(t, d, h)
				if n := count(t, newClient(t, srv.Addr()), prefix+"/twice"); n > 0 {
					t.Errorf("%d tickets are left", n)
				}
				release(t, d, other)
			})
		}
	}
}

// A proxy answers a put that its own time is over, and passes it on only after the ticket that the
// client has put with the next sending was released: that puts no ticket any more.
func TestRepeatedPutArrivesLate(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	var armed atomic.Bool
	var late atomic.Pointer[etcdserverpb.TxnRequest]
	d, err := etcd.OpenWith(t.Context(), srv.URL(), prefix, unary(
		func(_ context.Context, _ string, req, _ any, next func() error) error {
			if isPut(req) && armed.Swap(false) {
				late.Store(req.(*etcdserverpb.TxnRequest))
				return status.Error(codes.DeadlineExceeded, "upstream request timeout")
			}
			return next()
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	other := acquire(t, d, request("other", "id-other", 30*time.Second)) // keeps the lease
	admin := newClient(t, srv.Addr())
	for _, wait := range []bool{true, false} {
		armed.Store(true)
		r := request("late", fmt.Sprint("id-", wait), 30*time.Second)
		r.Wait = wait
		release(t, d, acquire(t, d, r))
		if armed.Load() {
			t.Fatal("the put was not repeated: the test tests nothing")
		}
		_, _ = etcdserverpb.NewKVClient(admin.ActiveConnection()).Txn(t.Context(), late.Load()) // may be refused: its lease is over
		if n := count(t, admin, prefix+"/late"); n > 0 {
			t.Errorf("wait %t: %d tickets are queued after the release", wait, n)
		}
	}
	release(t, d, other)
}

// A proxy answers a put that its own time is over, after it was executed, and the client's next
// sending is refused: that does not mean that there is no ticket.
func TestRepeatedPutIsRefused(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	prefix := randomPrefix()
	var armed atomic.Int32
	d, err := etcd.OpenWith(t.Context(), srv.URL(), prefix, unary(
		func(_ context.Context, _ string, req, _ any, next func() error) error {
			if !isPut(req) || armed.Load() == 0 {
				return next()
			}
			if armed.Add(-1) == 0 {
				return rpctypes.ErrGRPCPermissionDenied
			}
			if err := next(); err != nil {
				return err
			}
			return status.Error(codes.Canceled, "upstream request timeout")
		}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.Close() })
	other := acquire(t, d, request("other", "id-other", 30*time.Second)) // keeps the lease
	armed.Store(2)
	r := request("refused", "id-r", 30*time.Second)
	if _, err := d.Acquire(t.Context(), r); !errors.Is(err, rpctypes.ErrPermissionDenied) || errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("acquire: %v, want the refusal, and a ticket that may be there", err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil {
		t.Errorf("release: %v", err)
	}
	if n := count(t, newClient(t, srv.Addr()), prefix+"/refused"); n > 0 {
		t.Errorf("%d tickets are queued after the release", n)
	}
	release(t, d, other)
}

// A proxy or a server answers a release, or a break, after it was executed, that its own time was
// over. The client sends it again, and finds no ticket: its first sending has removed it.
func TestClientRepeatsARemoval(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedEtcd(t)
	for _, code := range []codes.Code{codes.DeadlineExceeded, codes.Canceled} {
		t.Run(code.String(), func(t *testing.T) {
			prefix := randomPrefix()
			var armed, orphaned atomic.Bool
			d, err := etcd.OpenWith(t.Context(), srv.URL(), prefix, unary(
				func(_ context.Context, _ string, req, _ any, next func() error) error {
					err := next()
					switch {
					case err == nil && isRemoval(req) && armed.Swap(false):
						return status.Error(code, "upstream request timeout")
					case err == nil && isPut(req) && orphaned.Swap(false):
						return status.Error(codes.Unavailable, "upstream is gone")
					}
					return err
				}))
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = d.Close() })
			other := newDriver(t, newClient(t, srv.Addr()), withPrefix(prefix))
			foreign := acquire(t, other, request("foreign", "id-f", 30*time.Second))
			broken := acquire(t, other, request("broken", "id-b", 30*time.Second))
			own := acquire(t, d, request("own", "id-o", 30*time.Second))
			orphan := request("orphan", "id-u", 30*time.Second)
			orphaned.Store(true)
			if _, err := d.Acquire(t.Context(), orphan); !errors.Is(err, driver.ErrUnavailable) {
				t.Fatalf("acquire: %v, want no answer", err)
			}
			repeated := func(what string, remove func() error) {
				t.Helper()
				armed.Store(true)
				if err := remove(); err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if armed.Swap(false) {
					t.Errorf("%s was not repeated: the test tests nothing", what)
				}
				if err := remove(); !errors.Is(err, driver.ErrLost) {
					t.Errorf("%s of what is gone: %v, want ErrLost", what, err)
				}
			}
			repeated("release", func() error { return d.Release(t.Context(), own) })
			repeated("release of another driver's ticket", func() error { return d.Release(t.Context(), foreign) })
			repeated("release of a ticket whose put was not answered", func() error { return d.Release(t.Context(), orphan.Hold(0)) })
			repeated("break", func() error { return d.Break(t.Context(), broken.Name, broken.Token) })
		})
	}
}

// A server that is full answers so after it has executed a put. The ticket does not stay,
// although the server takes no puts any more, nor the tombstone.
func TestFull(t *testing.T) {
	t.Parallel()
	srv := testbed.Etcd(t)
	admin := newClient(t, srv.Addr())
	alarms := etcdserverpb.NewMaintenanceClient(admin.ActiveConnection())
	var armed atomic.Bool
	prefix := randomPrefix()
	d := newDriver(t, afterPut(t, srv.Addr(), func() error {
		if !armed.Swap(false) {
			return nil
		}
		full := &etcdserverpb.AlarmRequest{Action: etcdserverpb.AlarmRequest_ACTIVATE, Alarm: etcdserverpb.AlarmType_NOSPACE}
		if _, err := alarms.Alarm(t.Context(), full); err != nil {
			t.Error(err)
		}
		return rpctypes.ErrGRPCNoSpace
	}), withPrefix(prefix))
	held := acquire(t, d, request("held", "id-held", 30*time.Second))
	kept := acquire(t, d, request("kept", "id-kept", 30*time.Second))
	armed.Store(true)
	r := request("full", "id-full", 30*time.Second)
	_, err := d.Acquire(t.Context(), r)
	if !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNoTicket) || !strings.Contains(err.Error(), "space") {
		t.Errorf("acquire: %v, want ErrUnavailable and an unknown outcome", err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err == nil || errors.Is(err, driver.ErrLost) {
		t.Errorf("release: %v, want the store's error: a late put is not prevented yet", err)
	}
	if n := count(t, admin, prefix+"/full"); n > 0 {
		t.Errorf("%d tickets are left", n)
	}
	if _, err := d.Acquire(t.Context(), request("new", "id-new", 30*time.Second)); !errors.Is(err, driver.ErrUnavailable) {
		t.Errorf("acquire on a full server: %v, want ErrUnavailable", err)
	}
	if err := d.Renew(t.Context(), held, 30*time.Second); err != nil {
		t.Errorf("renewal on a full server: %v", err)
	}
	if err := d.Renew(t.Context(), held, time.Minute); err != nil {
		t.Errorf("extension on a full server: %v", err)
	}
	release(t, d, held)
	if _, err := admin.AlarmDisarm(t.Context(), &clientv3.AlarmMember{}); err != nil {
		t.Fatal(err)
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil && !errors.Is(err, driver.ErrLost) {
		t.Errorf("release, asked again: %v", err)
	}
	release(t, d, acquire(t, d, request("full", "id-next", 30*time.Second)))
	release(t, d, kept)
}
