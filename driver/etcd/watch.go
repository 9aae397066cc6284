package etcd

import (
	"context"
	"errors"
	"strconv"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// Watch implements kvqueue.Store. It watches from now on, because the server serves a
// watch from a past revision in a loop that runs every 100 ms. It reads changes from
// before the watch: of the queue or, far from its head, of the one ticket that is watched.
func (s *store) Watch(ctx context.Context, w kvqueue.Watching, report func(kvqueue.Event)) error {
	opened := func(ctx context.Context, revision int64) error {
		if uint64(revision) <= w.Complete {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, max(w.Bound, answerBound))
		defer cancel()
		if w.Aim.Key != "" {
			missing, err := s.Missing(ctx, []kvqueue.Ticket{{Entry: w.Aim}})
			if len(missing) > 0 {
				report(kvqueue.Event{Gone: []kvqueue.Gone{{Key: w.Aim.Key, Before: w.Aim.Number + 1}}})
			}
			return err
		}
		read, err := s.Read(ctx, w.Name)
		if err == nil {
			report(kvqueue.Event{Queue: &read})
		}
		return err
	}
	deleted := func(_ context.Context, events []*clientv3.Event) error {
		gone := make([]kvqueue.Gone, len(events))
		for i, e := range events {
			gone[i] = kvqueue.Gone{Key: string(e.Kv.Key), Before: uint64(e.Kv.ModRevision)}
		}
		report(kvqueue.Event{Gone: gone})
		return nil
	}
	if w.Aim.Key == "" {
		return s.follow(ctx, s.queue(w.Name), opened, deleted, clientv3.WithPrefix())
	}
	return s.follow(ctx, w.Aim.Key, opened, deleted)
}

// Losses implements kvqueue.Store. Each session has a key, which ends with the session. Who
// breaks a ticket of the session deletes the key; then it is put again, for the next break.
func (s *store) Losses(ctx context.Context, session string, report func()) error {
	key := s.notice(session)
	put := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, answerBound)
		defer cancel()
		_, err := s.commit(ctx, []clientv3.Cmp{createdAt(key, absent)}, clientv3.OpPut(key, "", clientv3.WithLease(leaseOf(session))))
		return outcome(err)
	}
	opened := func(ctx context.Context, _ int64) error {
		err := put(ctx)
		if err == nil {
			report()
		}
		return err
	}
	deleted := func(ctx context.Context, _ []*clientv3.Event) error {
		err := put(ctx)
		if !errors.Is(err, kvqueue.ErrSessionOver) { // a server that is full deletes, and puts nothing
			report()
		}
		return err
	}
	return s.follow(ctx, key, opened, deleted)
}

// follow watches for deletions until ctx ends. If a member does not open the watch in time,
// or ends it, follow returns an error, and the next watch is on another stream, likely to
// another member. A stream whose login has run out opens no watch any more.
func (s *store) follow(ctx context.Context, key string, opened func(context.Context, int64) error,
	deleted func(context.Context, []*clientv3.Event) error, opts ...clientv3.OpOption,
) error {
	stream := s.streams.Load()
	watched, cancel := context.WithCancel(onStream(ctx, stream))
	defer cancel()
	late := time.AfterFunc(answerBound, cancel)
	defer late.Stop()
	changes := s.client.Watch(watched, key, append(opts, clientv3.WithFilterPut(), clientv3.WithCreatedNotify())...)
	for {
		var resp clientv3.WatchResponse
		select {
		case resp = <-changes: // the zero response means that the client has given the watch up
		case <-watched.Done():
		}
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case resp.Err() != nil:
			s.streams.CompareAndSwap(stream, stream+1) // unless another watch has done so
			return resp.Err()
		case resp.Created && late.Stop():
			if err := opened(ctx, resp.Header.Revision); err != nil {
				return err
			}
		case len(resp.Events) > 0:
			if err := deleted(ctx, resp.Events); err != nil {
				return err
			}
		case resp.Header.Revision == 0 || watched.Err() != nil:
			s.streams.CompareAndSwap(stream, stream+1)
			return errNoAnswer
		}
	}
}

// onStream returns the context of a watch. The client carries all watches whose contexts
// have the same metadata on one stream to one member. With another number it opens
// another stream, most likely to another member.
func onStream(ctx context.Context, number int64) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "locker-stream", strconv.FormatInt(number, 10))
	return clientv3.WithRequireLeader(ctx)
}
