package zookeeper_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestStartedEmpty: the servers lose their data, and are started again. They refuse a client that has seen more than they
// have, until its session must be over. Then the driver works again (D16): what was held is lost, and who waits is granted.
func TestStartedEmpty(t *testing.T) {
	t.Parallel()
	slot(t)
	srv, ctx := testbed.SharedZookeeper(t), ctxFor(t, 60*time.Second)
	var server atomic.Pointer[testbed.Server]
	var present atomic.Pointer[net.Conn]
	server.Store(srv)
	through := relay(t, func() (net.Conn, error) {
		conn, err := net.Dial("tcp", server.Load().Addr())
		if err == nil {
			present.Store(&conn)
		}
		return conn, err
	})
	at := strings.Replace(storeURL(t), srv.Addr(), through, 1)
	d := must[*zookeeper.Driver](t)(zookeeper.Open(ctx, strings.Replace(at, "session="+session.String(), "session=4s", 1)))
	c := locker.New(d)
	t.Cleanup(func() { _ = c.Close() })
	for range 100 { // more than the empty server has
		if err := c.Ping(ctx); err != nil {
			t.Fatal(err)
		}
	}
	held := must[*locker.Lock](t)(c.Acquire(ctx, "x"))
	ended := make(chan error, 1)
	go func() {
		k, err := c.Acquire(ctx, "x")
		if err == nil {
			err = k.Release(ctx)
		}
		ended <- err
	}()
	queueOf(t, c, "x", 2)
	server.Store(testbed.Zookeeper(t, testbed.Faults()))
	(*present.Load()).Close()
	if <-held.Done(); !errors.Is(held.Err(), locker.ErrLost) {
		t.Errorf("the holder: %v", held.Err())
	}
	if err := <-ended; err != nil {
		t.Errorf("the waiter: %v", err)
	}
}

// TestStartedFromBackup: the server loses what was done since a backup, and is started again when no session of a driver can
// be alive. A ticket that is in the backup, and was released since, goes when its session has timed out: the driver, which
// does not have that ticket, does not keep the session alive.
func TestStartedFromBackup(t *testing.T) {
	t.Parallel()
	slot(t)
	const timeout = 2 * time.Second
	dir, backup := t.TempDir(), t.TempDir()
	srv, ctx := testbed.Zookeeper(t, testbed.Faults(), testbed.Args("dataDir="+dir)), ctxFor(t, 60*time.Second)
	at := srv.URL() + "?session=" + timeout.String()
	d := must[*zookeeper.Driver](t)(zookeeper.Open(ctx, at))
	t.Cleanup(func() { _ = d.Close() })
	r := request("x", "held-1")
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	srv.Kill()
	if err := os.CopyFS(backup+"/data", os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	for err := errors.New("not yet"); err != nil && ctx.Err() == nil; {
		err = d.Release(ctx, r.Hold(g.Token))
	}
	for range 100 { // more than the backup has
		_ = d.Ping(ctx)
	}
	srv.Kill()
	time.Sleep(2*timeout + time.Second) // the outage
	if err := errors.Join(os.RemoveAll(dir), os.CopyFS(dir, os.DirFS(backup+"/data"))); err != nil {
		t.Fatal(err)
	}
	srv.Start()
	for err := errors.New("not yet"); err != nil && ctx.Err() == nil; {
		err = d.Ping(ctx)
	}
	r.ID, r.Wait = "waits-1", true
	short, cancel := context.WithTimeout(ctx, 5*timeout)
	defer cancel()
	if _, err := d.Acquire(short, r); err != nil {
		t.Errorf("while the ticket of the backup should be gone: %v", err)
	}
}
