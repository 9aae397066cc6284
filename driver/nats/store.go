package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	atOnce      = 500         // entries in one request, of which NATS takes 1,024
	keepBarrier = time.Minute // longer than any reading takes
)

var _ interface {
	casqueue.Store
	casqueue.Watcher
} = (*client)(nil)

// Get implements casqueue.Store. Any replica or mirror of the bucket answers, and none knows whether it is up to
// date: a leader that was replaced while it stood still does not know that either. So the entries are read together
// with one that was written after Get was called, the barrier: who knows that knows all that was written before.
func (c *client) Get(ctx context.Context, keys ...string) ([]casqueue.Document, error) {
	docs := make([]casqueue.Document, 0, len(keys))
	err := c.request(ctx, func(ctx context.Context, s *session) error {
		least, err := s.write(ctx, c.names.barrier(), nil, keepBarrier)
		if err != nil {
			return err
		}
		for chunk := range slices.Chunk(keys, atOnce) {
			found, err := s.get(ctx, chunk, least)
			if err != nil {
				return err
			}
			for _, key := range chunk {
				d := casqueue.Document{}
				if e, ok := found[c.names.subject(key)]; ok {
					d = casqueue.Document{Value: e.value, Version: casqueue.Version{Era: s.era, Number: e.number}}
				}
				docs = append(docs, d)
			}
		}
		return nil
	}, c.names.get(), c.names.barrier())
	if err != nil {
		return nil, err
	}
	return docs, nil
}

// Put implements casqueue.Store. Servers that lose what they had not yet written to their disks give the same
// numbers again, so a version that was read on another connection may be that of another content: the document
// has to be read again.
func (c *client) Put(ctx context.Context, key string, value []byte, read casqueue.Version, keep time.Duration) (v casqueue.Version, err error) {
	subject := c.names.subject(key)
	err = c.request(ctx, func(ctx context.Context, s *session) error {
		if read.Number != 0 && read.Era != s.era {
			return casqueue.ErrChanged
		}
		if len(value) > s.largest {
			return fmt.Errorf("%w: %d bytes of at most %d (max_payload of nats-server)", casqueue.ErrTooLarge, len(value), s.largest)
		}
		number, err := s.write(ctx, subject, value, keep, jetstream.WithExpectLastSequencePerSubject(read.Number))
		v = casqueue.Version{Era: s.era, Number: number}
		return err
	}, subject)
	return v, err
}

// Set implements casqueue.Store.
func (c *client) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	subject := c.names.subject(key)
	return c.request(ctx, func(ctx context.Context, s *session) error {
		_, err := s.write(ctx, subject, value, keep)
		return err
	}, subject)
}

// request makes a request, on some subjects, for as long as one may take. While nobody answers for the bucket, certainly
// nothing is done, and it is made again: servers may not yet know of a new bucket, or of its new leader.
func (c *client) request(caller context.Context, f func(ctx context.Context, s *session) error, subjects ...string) error {
	for begun, pause := time.Now(), 10*time.Millisecond; ; pause = min(2*pause, 100*time.Millisecond) {
		err := c.try(caller, f, subjects)
		if !errors.Is(err, errNoBucket) || time.Since(begun) > c.o.timeout || !retry.Sleep(caller, pause, c.ctx.Done()) {
			return err
		}
	}
}

// try makes a request once.
func (c *client) try(caller context.Context, f func(ctx context.Context, s *session) error, subjects []string) error {
	s, err := c.connect(caller)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(caller, c.o.timeout)
	defer cancel()
	if err := f(ctx, s); err != nil {
		return s.failed(ctx, caller, err, subjects...)
	}
	return nil
}

// Watch implements casqueue.Watcher. The bucket republishes what was stored, and nothing is kept in the server
// for who listens; so what is told while there is no connection is lost, and Watch ends with the connection.
func (c *client) Watch(ctx context.Context, key string, changed func()) error {
	var ended <-chan struct{}
	subject := c.names.changesOf(key)
	var sub *natsgo.Subscription
	err := c.request(ctx, func(timed context.Context, s *session) (err error) {
		ended = s.dead
		if sub, err = s.nc.Subscribe(subject, func(*natsgo.Msg) { changed() }); err != nil {
			return err
		}
		return errors.Join(s.nc.FlushWithContext(timed), s.denied(subject))
	}, subject)
	if sub != nil {
		defer func() { _ = sub.Unsubscribe() }() // fails only without a connection
	}
	if err != nil {
		return err
	}
	changed()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-ended:
		return driver.Unavailable(errDisconnected)
	}
}

// write writes an entry, and returns its number.
func (s *session) write(ctx context.Context, subject string, value []byte, keep time.Duration, opts ...jetstream.PublishOpt) (uint64, error) {
	keep = (keep + time.Second - 1).Truncate(time.Second) // NATS counts whole seconds
	opts = append(opts, jetstream.WithMsgTTL(keep), jetstream.WithExpectStream(s.names.stream()), jetstream.WithRetryAttempts(0))
	ack, err := s.js.PublishMsg(ctx, &natsgo.Msg{Subject: subject, Data: value}, opts...)
	if err != nil {
		return 0, err
	}
	return ack.Sequence, nil
}

// get reads the entries of keys as of the barrier with the number least, or later. The question goes to one of the
// replicas: if that one stands still, another is asked.
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
