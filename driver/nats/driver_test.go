package nats_test

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"strings"
	"sync"
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

// The store's requests, one by one.
func TestStore(t *testing.T) {
	t.Parallel()
	s := opened(t, testbed.SharedNats(t).URL()).Store()
	ctx := t.Context()
	const a, b = "store:q:a", "store:q:b"
	v, err := s.Put(ctx, a, []byte("1"), casqueue.Version{}, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, a, []byte("2"), casqueue.Version{}, time.Second); !errors.Is(err, casqueue.ErrChanged) {
		t.Errorf("create what is there: %v", err)
	}
	if _, err := s.Put(ctx, b, []byte("2"), v, time.Second); !errors.Is(err, casqueue.ErrChanged) {
		t.Errorf("replace what is not there: %v", err)
	}
	if err := s.Set(ctx, a, []byte("3"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Put(ctx, a, []byte("4"), v, time.Second); !errors.Is(err, casqueue.ErrChanged) {
		t.Errorf("replace what has changed: %v", err)
	}
	docs, err := s.Get(ctx, b, a, b)
	if err != nil || string(docs[1].Value) != "3" || docs[1].Version.Number <= v.Number || docs[0].Version != (casqueue.Version{}) || docs[2].Version != docs[0].Version {
		t.Errorf("%+v, %v", docs, err)
	}
	if err := s.Set(ctx, a, []byte("5"), time.Second); err != nil {
		t.Fatal(err)
	}
	waitFor(t, 5*time.Second, "end of what is kept for a second", func() bool {
		docs, err = s.Get(ctx, a)
		return err == nil && docs[0].Version == casqueue.Version{}
	})
	if _, err := s.Put(ctx, a, nil, casqueue.Version{}, time.Second); err != nil {
		t.Errorf("create what was forgotten: %v", err)
	}
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprint("store:q:many", i))
	}
	if err := s.Set(ctx, many[90], []byte("x"), time.Minute); err != nil {
		t.Fatal(err)
	}
	if docs, err := s.Get(ctx, many...); err != nil || len(docs) != len(many) || string(docs[90].Value) != "x" {
		t.Errorf("%d documents, %v", len(docs), err)
	}
	const most = 1 << 20 // of a message, with its headers
	if _, err := s.Put(ctx, a, make([]byte, most-512), casqueue.Version{}, time.Second); !errors.Is(err, casqueue.ErrTooLarge) {
		t.Errorf("almost a mebibyte: %v", err)
	}
}

// Watch reports once that it has begun, and then every change, when that can be read.
func TestWatch(t *testing.T) {
	t.Parallel()
	s := opened(t, testbed.SharedNats(t).URL()).Store()
	const key = "watch:n:a"
	changed := make(chan struct{}, 100)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Watch(ctx, key, func() { changed <- struct{}{} }) }()
	<-changed
	for i := range 20 {
		if err := s.Set(t.Context(), key, fmt.Append(nil, i), time.Minute); err != nil {
			t.Fatal(err)
		}
		select {
		case <-changed:
		case <-time.After(5 * time.Second):
			t.Fatalf("change %d was not reported", i)
		}
		if docs, err := s.Get(t.Context(), key); err != nil || string(docs[0].Value) != fmt.Sprint(i) {
			t.Fatalf("%+v, %v, want %d", docs, err, i)
		}
	}
	cancel()
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// Watch reports nothing after it has returned: the engine, which polls again then, would take it for begun.
func TestWatchReturns(t *testing.T) {
	t.Parallel()
	s := opened(t, testbed.SharedNats(t).URL()).Store()
	const key = "returns:n:a"
	ctx, cancel := context.WithCancel(t.Context())
	telling, goOn, ended := make(chan struct{}), make(chan struct{}), make(chan error, 1)
	calls := 0
	go func() {
		ended <- s.Watch(ctx, key, func() {
			if calls++; calls <= 2 { // that it has begun, and the first change
				telling <- struct{}{}
				<-goOn
			}
		})
	}()
	<-telling
	goOn <- struct{}{}
	if err := s.Set(t.Context(), key, nil, time.Minute); err != nil {
		t.Fatal(err)
	}
	<-telling
	cancel()
	select {
	case err := <-ended:
		t.Errorf("Watch has returned %v, and reports a change", err)
	case <-time.After(200 * time.Millisecond):
	}
	close(goOn)
	if err := <-ended; !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
}

// A queue that fills its message refuses tickets, with the reason, and works on.
func TestQueueTooLarge(t *testing.T) {
	t.Parallel()
	d := opened(t, testbed.SharedNats(t).URL()+"?prefix=full&timeout=20s")
	name := rand.Text() // its cancelled tickets stay for a while
	// Nobody renews the holder's lease, and 1,800 waiters take their time.
	r := driver.Request{Name: name, ID: "holder", TTL: 10 * time.Minute}
	g, err := d.Acquire(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	const n = 1800 // more than fit
	waits, cancel := context.WithCancel(t.Context())
	errs := make(chan error, n)
	var waiters sync.WaitGroup
	for i := range n {
		waiters.Go(func() {
			w := driver.Request{Name: name, ID: fmt.Sprint(i), TTL: time.Minute, Wait: true, Note: strings.Repeat("n", 512)}
			_, err := d.Acquire(waits, w)
			errs <- err
		})
	}
	if err := <-errs; driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(fmt.Sprint(err), "the queue is full") {
		t.Errorf("refused with %v", err)
	}
	queue, err := d.Inspect(t.Context(), name)
	if err != nil || len(queue) < 500 || len(queue) > n {
		t.Errorf("%d tickets, %v", len(queue), err)
	}
	if err := d.Release(t.Context(), r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
	cancel()
	waiters.Wait()
}

// A bucket that loses locks, or cannot do what the driver needs, is refused.
func TestBuckets(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedNats(t)
	js, err := jetstream.New(connect(t, srv.Addr()))
	if err != nil {
		t.Fatal(err)
	}
	// What the driver makes itself is accepted.
	if err := process(t, srv.URL()+"?bucket=good").Ping(t.Context()); err != nil {
		t.Fatal(err)
	}
	good, err := stream(t.Context(), srv.Addr(), "good")
	if err != nil {
		t.Fatal(err)
	}
	for name, wrong := range map[string]struct {
		change func(*jetstream.StreamConfig)
		want   string
	}{
		"memory":    {func(c *jetstream.StreamConfig) { c.Storage = jetstream.MemoryStorage }, "memory"},
		"discards":  {func(c *jetstream.StreamConfig) { c.Discard = jetstream.DiscardOld }, "discards"},
		"async":     {func(c *jetstream.StreamConfig) { c.PersistMode = jetstream.AsyncPersistMode }, "not yet written"},
		"silent":    {func(c *jetstream.StreamConfig) { c.NoAck = true }, "acknowledges nothing"},
		"interest":  {func(c *jetstream.StreamConfig) { c.Retention = jetstream.InterestPolicy }, "consumes"},
		"ages":      {func(c *jetstream.StreamConfig) { c.MaxAge = time.Hour }, "greatest age"},
		"markers":   {func(c *jetstream.StreamConfig) { c.SubjectDeleteMarkerTTL = time.Minute }, "--subject-del-markers-ttl=0s"},
		"direct":    {func(c *jetstream.StreamConfig) { c.AllowDirect = false }, "allow_direct"},
		"ttl":       {func(c *jetstream.StreamConfig) { c.AllowMsgTTL = false }, "allow_msg_ttl"},
		"rollup":    {func(c *jetstream.StreamConfig) { c.AllowRollup = false }, "allow_rollup_hdrs"},
		"republish": {func(c *jetstream.StreamConfig) { c.RePublish = nil }, "republish"},
	} {
		c := good.Config
		c.Name, c.Subjects, c.RePublish = "KV_"+name, []string{"$KV." + name + ".>"}, &jetstream.RePublish{
			Source: "$KV." + name + ".>", Destination: "_LOCKER." + name + ".>", HeadersOnly: true,
		}
		wrong.change(&c)
		if _, err := js.CreateStream(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		_, err := process(t, srv.URL()+"?bucket="+name).TryAcquire(t.Context(), "a")
		if err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), wrong.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// One whose markers are turned off, as the error says, is accepted.
	edited, err := stream(t.Context(), srv.Addr(), "markers")
	if err != nil {
		t.Fatal(err)
	}
	edited.Config.SubjectDeleteMarkerTTL = 0
	if _, err := js.UpdateStream(t.Context(), edited.Config); err != nil {
		t.Fatal(err)
	}
	if err := process(t, srv.URL()+"?bucket=markers").Ping(t.Context()); err != nil {
		t.Error(err)
	}
	if err := js.DeleteStream(t.Context(), edited.Config.Name); err != nil {
		t.Error(err)
	}
	if err := process(t, srv.URL()+"?bucket=good&replicas=3").Ping(t.Context()); err == nil || errors.Is(err, locker.ErrUnavailable) || !strings.Contains(err.Error(), "1 replicas") {
		t.Errorf("too few replicas: %v", err)
	}
	if err := process(t, srv.URL()+"?bucket=new&replicas=3").Ping(t.Context()); err == nil || errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("replicas on a single server: %v", err)
	}
}

// On a connection of the program's own, the driver works again after an outage, and Close leaves the connection open.
func TestGiven(t *testing.T) {
	t.Parallel()
	srv := testbed.Nats(t, testbed.Faults())
	nc := connect(t, srv.Addr(), natsgo.MaxReconnects(-1), natsgo.ReconnectWait(50*time.Millisecond))
	d, err := nats.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	l := locker.New(d)
	k := take(t, l, "given")
	other, queued := queuing(t, srv.URL())
	got := make(chan error, 1)
	go func() {
		next, err := other.Acquire(t.Context(), "given")
		if err == nil {
			err = next.Release(t.Context())
		}
		got <- err
	}()
	select {
	case <-queued:
	case err := <-got:
		t.Fatalf("granted a lock that is held, or not queued: %v", err)
	}
	srv.Kill()
	if _, err := l.TryAcquire(t.Context(), "other"); !errors.Is(err, locker.ErrUnavailable) {
		t.Errorf("while the server is down: %v", err)
	}
	srv.Start()
	waitFor(t, 10*time.Second, "connection", nc.IsConnected) // an earlier request fails
	if err := take(t, l, "other").Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := k.Release(t.Context()); err != nil {
		t.Error(err)
	}
	if err := <-got; err != nil {
		t.Error(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	if !nc.IsConnected() {
		t.Error("the program's connection was closed")
	}
	nc.Close()
	if err := second(nats.New(nil)); err == nil {
		t.Error("no connection is accepted")
	}
}

func TestNew(t *testing.T) {
	t.Parallel()
	nc := connect(t, testbed.SharedNats(t).Addr())
	for what, opt := range map[string]nats.Option{
		"a blank prefix":    nats.WithPrefix("a b"),
		"a long prefix":     nats.WithPrefix(strings.Repeat("x", 200)),
		"a bucket with dot": nats.WithBucket("a.b"),
		"six replicas":      nats.WithReplicas(6),
		"no time":           nats.WithTimeout(0),
	} {
		if err := second(nats.New(nc, opt)); err == nil {
			t.Errorf("%s is accepted", what)
		}
	}
	d, err := nats.New(nc, nil)
	if err != nil || d.String() != "nats "+nc.ConnectedAddr()+", bucket locker" {
		t.Errorf("%v, %v", d, err)
	}
	if err := errors.Join(d.Close(), d.Close()); err != nil {
		t.Error(err)
	}
}

func second(_ *nats.Driver, err error) error { return err }

func TestServerVersion(t *testing.T) {
	t.Parallel()
	v, err := opened(t, testbed.SharedNats(t).URL()).ServerVersion(t.Context())
	if err != nil || !strings.HasPrefix(v, "NATS 2.") {
		t.Errorf("%q, %v", v, err)
	}
}
