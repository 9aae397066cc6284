package nats_test

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"reflect"
	"sync/atomic"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/driver/nats"
	"github.com/lockerproject/locker/internal/testbed"
)

// A server that is killed keeps its locks, and its tokens.
func TestServerKilled(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	a, b := process(t, srv.URL()), process(t, srv.URL())
	k := take(t, a, "killed", locker.WithTTL(20*time.Second)) // outlasts the restart
	srv.Restart()
	if next, err := b.TryAcquire(t.Context(), "killed"); !errors.Is(err, locker.ErrNotAcquired) {
		t.Errorf("%v, %v: want the lock to be held", next, err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if next := take(t, b, "killed"); next.Token() <= k.Token() {
		t.Errorf("token %d after %d", next.Token(), k.Token())
	}
}

// A bucket that somebody deletes is made anew: its locks are lost, holders notice at their next renewal, and tokens and
// numbers grow.
func TestBucketLost(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	const ttl = 3 * time.Second
	a, b := process(t, srv.URL()), process(t, srv.URL())
	k := take(t, a, "lost", locker.WithTTL(ttl))
	store := opened(t, srv.URL()).Store()
	if err := errors.Join(b.Ping(t.Context()), store.Set(t.Context(), "lost:n:a", nil, time.Minute)); err != nil { // all know the bucket
		t.Fatal(err)
	}
	before, err := stream(t.Context(), srv.Addr(), nats.DefaultBucket)
	if err != nil {
		t.Fatal(err)
	}
	js, err := jetstream.New(connect(t, srv.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	if err := js.DeleteStream(t.Context(), "KV_"+nats.DefaultBucket); err != nil {
		t.Fatal(err)
	}
	if err := store.Set(t.Context(), "lost:n:a", nil, time.Minute); err != nil {
		t.Errorf("the first request without the bucket: %v", err)
	}
	begun := time.Now()
	next := take(t, b, "lost", locker.WithTTL(ttl))
	granted := time.Since(begun)
	if next.Token() <= k.Token() {
		t.Errorf("token %d, and %d before the bucket was deleted", next.Token(), k.Token())
	}
	select {
	case <-k.Done():
		t.Logf("granted after %v, noticed after %v", granted, time.Since(begun))
	case <-time.After(ttl/3 + 2*time.Second):
		t.Errorf("the holder has not noticed")
	}
	if err := k.Err(); !errors.Is(err, locker.ErrLost) {
		t.Error(err)
	}
	after, err := stream(t.Context(), srv.Addr(), nats.DefaultBucket)
	if err != nil || after == nil || after.State.FirstSeq <= before.State.LastSeq {
		t.Errorf("%+v, %v: want numbers beyond those of the first bucket, %d", after, err, before.State.LastSeq)
	}
}

// A document that was read on another connection is read again before it is changed.
func TestEra(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	s := opened(t, srv.URL()).Store()
	v, err := s.Put(t.Context(), "p:q:a", []byte("1"), casqueue.Version{}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	first := v
	if v, err = s.Put(t.Context(), "p:q:a", []byte("2"), v, time.Minute); err != nil || v.Number <= first.Number || v.Era != first.Era {
		t.Fatalf("%+v after %+v, %v", v, first, err)
	}
	srv.Restart()
	waitFor(t, 10*time.Second, "answer", func() bool {
		_, err = s.Put(t.Context(), "p:q:a", []byte("3"), v, time.Minute)
		return !driver.IsUnavailable(err)
	})
	if !errors.Is(err, casqueue.ErrChanged) {
		t.Errorf("put on another connection: %v", err)
	}
	docs, err := s.Get(t.Context(), "p:q:a")
	if err != nil || string(docs[0].Value) != "2" || docs[0].Version.Number != v.Number {
		t.Fatalf("%+v, %v", docs, err)
	}
	if _, err := s.Put(t.Context(), "p:q:a", []byte("3"), docs[0].Version, time.Minute); err != nil {
		t.Error(err)
	}
}

// Watch ends with its connection, the program's or the driver's, without any other request. The program's connection
// comes back by itself, but what was republished meanwhile is lost.
func TestWatchEnds(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	nc := connect(t, srv.Addr(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	d, err := nats.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	stores := map[string]interface {
		casqueue.Store
		casqueue.Watcher
	}{"given": d.Store(), "own": opened(t, srv.URL()).Store()}
	for range 2 {
		ended := make(map[string]chan error)
		for what, s := range stores {
			begun, end := make(chan struct{}, 1), make(chan error, 1)
			go func() { end <- s.Watch(t.Context(), "ends:n:a", func() { begun <- struct{}{} }) }()
			<-begun
			ended[what] = end
		}
		srv.Restart()
		for what, end := range ended {
			select {
			case err := <-end:
				if !driver.IsUnavailable(err) {
					t.Errorf("%s: %v", what, err)
				}
			case <-time.After(5 * time.Second):
				t.Fatalf("%s: Watch goes on", what)
			}
		}
		for what, s := range stores {
			waitFor(t, 10*time.Second, "answer to "+what, func() bool { return s.Set(t.Context(), "ends:n:a", nil, time.Minute) == nil })
		}
	}
}

// However often the driver looks for the bucket in vain, it asks the connection only once to report its end.
func TestBucketSearched(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults(), testbed.Args("jetstream: disabled"))
	nc := connect(t, srv.Addr())
	d, err := nats.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	for range 20 {
		if err := d.Store().Set(t.Context(), "a", nil, time.Second); !driver.IsUnavailable(err) {
			t.Fatal(err)
		}
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	listeners := 0
	for all := reflect.ValueOf(nc).Elem().FieldByName("statListeners").MapRange(); all.Next(); {
		listeners += all.Value().Len()
	}
	if listeners > 2 {
		t.Errorf("the connection reports its end on %d channels", listeners)
	}
}

// misleading sends one request for entries, the last of left, where nobody answers.
type misleading struct{ left *atomic.Int64 }

// Dial implements natsgo.CustomDialer.
func (m misleading) Dial(network, addr string) (net.Conn, error) {
	nc, err := net.Dial(network, addr)
	return &misleadingConn{nc, m.left}, err
}

type misleadingConn struct {
	net.Conn
	left *atomic.Int64
}

func (c *misleadingConn) Write(p []byte) (int, error) {
	if subject := []byte("$JS.API.DIRECT.GET."); bytes.Contains(p, subject) && c.left.Add(-1) == 0 {
		p = bytes.ReplaceAll(p, subject, []byte("$NO.API.DIRECT.GET."))
	}
	return c.Conn.Write(p)
}

// A reading that is repeated, because nobody has answered a part of it, has each document once, in order.
func TestReadAgain(t *testing.T) {
	t.Parallel()
	var left atomic.Int64
	d := given(t, connect(t, testbed.SharedNats(t).Addr(), natsgo.SetCustomDialer(misleading{&left})))
	defer d.Close()
	keys := make([]string, 100)
	for i := range keys {
		keys[i] = fmt.Sprint("again:q:", i)
	}
	if err := d.Store().Set(t.Context(), keys[90], []byte("x"), time.Minute); err != nil {
		t.Fatal(err)
	}
	left.Store(1)
	docs, err := d.Store().Get(t.Context(), keys...)
	if err != nil || len(docs) != len(keys) || string(docs[90].Value) != "x" {
		t.Errorf("%d documents for %d keys, %v", len(docs), len(keys), err)
	}
	if left.Load() > 0 {
		t.Error("all requests were answered")
	}
}
