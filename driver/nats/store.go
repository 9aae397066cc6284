package nats

import (
	"context"
	"errors"
	"fmt"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	keepBarrier = time.Minute // longer than any reading takes
	manyChanges = 64          // that may be reported while one is handled

	// When to ask again what a bucket has: one with a limited size, unless it has much, and one without, which may have a
	// limit by then.
	measureEvery = 100 * time.Millisecond
	searchEvery  = time.Second
)

var _ interface {
	casqueue.Store
	casqueue.Clock
	casqueue.Watcher
} = (*client)(nil)

// Get implements casqueue.Store. Any replica or mirror of the bucket may answer, and none knows whether it is up to
// date: even a leader does not know that it was replaced while it stood still. So Get writes an entry, the barrier, and
// reads it together with the others: a server that has the barrier has all that was written before it.
func (c *client) Get(ctx context.Context, keys ...string) ([]casqueue.Document, error) {
	return request(ctx, c, func(ctx context.Context, s *session) ([]casqueue.Document, error) {
		least, err := s.write(ctx, c.names.barrier(), nil, keepBarrier)
		if err != nil {
			return nil, err
		}
		found, err := s.get(ctx, keys, least)
		if err != nil {
			return nil, err
		}
		docs := make([]casqueue.Document, len(keys))
		for i, key := range keys {
			if e, ok := found[c.names.subject(key)]; ok {
				docs[i] = casqueue.Document{Value: e.value, Version: casqueue.Version{Era: s.era, Number: e.number}}
			}
		}
		return docs, nil
	}, c.names.get(), c.names.barrier())
}

// Put implements casqueue.Store. Servers that lose what they had not yet written to their disks give the same
// numbers again. So a version that was read on another connection may belong to another content by now: Put returns
// ErrChanged, and the document has to be read again.
func (c *client) Put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (casqueue.Version, error) {
	subject := c.names.subject(key)
	return request(ctx, c, func(ctx context.Context, s *session) (v casqueue.Version, err error) {
		if read.Number != 0 && read.Era != s.era {
			return v, casqueue.ErrChanged
		}
		if len(value) > s.largest {
			return v, fmt.Errorf("%w: %d bytes of at most %d (max_payload of nats-server)", casqueue.ErrTooLarge, len(value), s.largest)
		}
		if read.Number == 0 {
			if err := s.room(ctx); err != nil {
				return v, err
			}
		}
		v.Era = s.era
		v.Number, err = s.write(ctx, subject, value, keep, jetstream.WithExpectLastSequencePerSubject(read.Number))
		return v, err
	}, subject)
}

// Set implements casqueue.Store.
func (c *client) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	subject := c.names.subject(key)
	_, err := request(ctx, c, func(ctx context.Context, s *session) (uint64, error) {
		return s.write(ctx, subject, value, keep)
	}, subject)
	return err
}

// Time implements casqueue.Clock: with the clock of the bucket's leader, which sends it with what it knows of the bucket.
// Each leader has a clock of its own.
func (c *client) Time(ctx context.Context) (casqueue.Time, error) {
	return request(ctx, c, func(ctx context.Context, s *session) (t casqueue.Time, err error) {
		stream, err := s.js.Stream(ctx, c.names.stream())
		if err != nil {
			return t, err
		}
		info := stream.CachedInfo()
		t.Clock = s.nc.ConnectedServerId()
		if info.Cluster != nil {
			t.Clock = info.Cluster.Leader
		}
		if t.Clock == "" || info.TimeStamp.IsZero() {
			return t, errNoClock
		}
		t.Earliest = time.Duration(info.TimeStamp.UnixNano())
		t.Latest = t.Earliest
		return t, nil
	}, c.names.api("INFO"))
}

// room returns an error if a bucket with a limited size has no room for the queue of another name. A bucket that is full
// refuses everything, also renewals and releases. So a quarter of it is left for those, and for waiters.
func (s *session) room(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	every := searchEvery
	if s.limited {
		every = measureEvery
	}
	if time.Since(s.measured) > every || s.used > 0.5 {
		stream, err := s.js.Stream(ctx, s.names.stream())
		if err != nil {
			return err
		}
		s.measure(stream.CachedInfo())
	}
	if s.used <= 0.75 {
		return nil
	}
	return casqueue.Full(fmt.Sprintf("the bucket has %.0f %% of what it takes (max_bytes and max_msgs of its stream): the rest is for the locks that are held", 100*s.used))
}

// measure notes what the servers say of the bucket. With mu held, or before others know the session.
func (s *session) measure(bucket *jetstream.StreamInfo) {
	s.measured = time.Now()
	s.limited, s.used = used(bucket)
}

// request makes a request on some subjects. It returns when the caller's context ends, whatever the connection does:
// the connection ignores contexts while it waits for its own mutex, and keeps that for seconds when it writes to a
// server that stands still, or reconnects to one.
func request[T any](caller context.Context, c *client, f func(ctx context.Context, s *session) (T, error), subjects ...string) (v T, err error) {
	type result struct {
		v   T
		err error
	}
	done := make(chan result, 1)
	if !c.life.Go(func() {
		v, err := repeat(caller, c, f, subjects)
		done <- result{v, err}
	}) {
		return v, driver.ErrClosed
	}
	select {
	case r := <-done:
		return r.v, r.err
	case <-caller.Done():
		return v, caller.Err()
	case <-c.life.Done():
		return v, driver.ErrClosed
	}
}

// repeat makes a request, and repeats it for as long as one may take while no server answers for the bucket: then it
// was certainly not done. Servers may not yet know of a new bucket, or of its new leader.
func repeat[T any](caller context.Context, c *client, f func(ctx context.Context, s *session) (T, error), subjects []string) (T, error) {
	for begun, pause := time.Now(), 10*time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		v, err := try(caller, c, f, subjects)
		if !errors.Is(err, errNoBucket) || time.Since(begun) > c.o.timeout || !retry.Sleep(caller, pause, c.life.Done()) {
			return v, err
		}
	}
}

// try makes a request once.
func try[T any](caller context.Context, c *client, f func(ctx context.Context, s *session) (T, error), subjects []string) (v T, err error) {
	s, err := c.connect(caller)
	if err != nil {
		return v, err
	}
	ctx, cancel := context.WithTimeout(caller, c.o.timeout)
	defer cancel()
	if v, err = f(ctx, s); err != nil {
		err = s.failed(ctx, caller, err, subjects...)
	}
	return v, err
}

// Watch implements casqueue.Watcher. The bucket republishes what was stored, and the server keeps nothing for
// subscribers. What it republishes while there is no connection is lost, so Watch ends with the connection.
func (c *client) Watch(ctx context.Context, key string, changed func()) error {
	ctx, end := context.WithCancel(ctx)
	defer end()
	subject := c.names.changesOf(key)
	changes := make(chan *natsgo.Msg, manyChanges)
	s, err := request(ctx, c, func(timed context.Context, s *session) (*session, error) {
		sub, err := s.nc.ChanSubscribe(subject, changes)
		if err != nil {
			return nil, err
		}
		unsubscribe := func() { // even if Watch has ended meanwhile
			<-ctx.Done()
			_ = sub.Unsubscribe() // fails only without a connection
		}
		if !c.life.Go(unsubscribe) {
			end()
			unsubscribe()
		}
		return s, errors.Join(s.nc.FlushWithContext(timed), s.denied(subject))
	}, subject)
	if err != nil {
		return err
	}
	for {
		changed()
		select {
		case <-changes:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.dead:
			return driver.Unavailable(errDisconnected)
		}
	}
}

// write writes an entry in place of those before it, and returns its number.
func (s *session) write(ctx context.Context, subject string, value []byte, keep time.Duration, opts ...jetstream.PublishOpt) (uint64, error) {
	keep = (keep + time.Second - 1).Truncate(time.Second) // NATS counts whole seconds
	opts = append(opts, jetstream.WithMsgTTL(keep), jetstream.WithExpectStream(s.names.stream()), jetstream.WithRetryAttempts(0))
	m := &natsgo.Msg{Subject: subject, Data: value, Header: natsgo.Header{natsgo.MsgRollup: {natsgo.MsgRollupSubject}}}
	ack, err := s.js.PublishMsg(ctx, m, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// get reads the entries of keys from a replica that has the barrier with the number least, or a later one. If the
// replica that gets the request is behind, or does not answer, get asks again.
func (s *session) get(ctx context.Context, keys []string, least uint64) (map[string]entry, error) {
	subjects := make([]string, 0, len(keys)+1)
	for _, key := range keys {
		subjects = append(subjects, s.names.subject(key))
	}
	subjects = append(subjects, s.names.barrier())
	for pause := time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		found, err := s.ask(ctx, subjects)
		switch {
		case err == nil && found[s.names.barrier()].number >= least:
			return found, nil
		case err != nil && !errors.Is(err, errMoved) && !errors.Is(err, errSilent) && !errors.Is(err, errParts):
			return nil, err
		}
		if !retry.Sleep(ctx, pause, s.dead) {
			return nil, errDisconnected
		}
	}
}

// ask reads the entries of subjects once.
func (s *session) ask(ctx context.Context, subjects []string) (map[string]entry, error) {
	answers := make(chan *natsgo.Msg, len(subjects)+1)
	inbox := s.nc.NewInbox()
	sub, err := s.nc.ChanSubscribe(inbox, answers)
	if err != nil {
		return nil, err
	}
	defer func() { _ = sub.Unsubscribe() }() // fails only without a connection
	if err := s.nc.PublishRequest(s.names.get(), inbox, multiGet(subjects)); err != nil {
		return nil, err
	}
	a := answer{found: make(map[string]entry, len(subjects))}
	timer := time.NewTimer(s.timeout / 4)
	defer timer.Stop()
	for {
		select {
		case m := <-answers:
			if end, err := a.add(m); end {
				return a.found, err
			}
		case <-s.dead:
			return nil, errDisconnected
		case <-timer.C:
			return nil, errSilent
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
