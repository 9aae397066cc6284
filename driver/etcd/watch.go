package etcd

import (
	"context"
	"strconv"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/metadata"

	"github.com/lockerproject/locker/driver/internal/kvqueue"
)

// Aim implements kvqueue.Store.
func (s *store) Aim(blockers []kvqueue.Entry, some bool) kvqueue.Entry {
	if some || len(blockers) <= nearFront {
		return kvqueue.Entry{}
	}
	return blockers[len(blockers)-1]
}

// Watch implements kvqueue.Store. It watches from now on, because the server serves a
// watch from a past revision in a loop that runs every 100 ms. It reads changes from
// before the watch.
func (s *store) Watch(ctx context.Context, w kvqueue.Watching, report func(kvqueue.Event)) error {
	opened := func(ctx context.Context, revision int64) error {
		if uint64(revision) <= w.Complete {
			return nil
		}
		read, err := s.Read(ctx, w.Name)
		if err == nil {
			report(kvqueue.Event{Queue: &read})
		}
		return err
	}
	deleted := func(events []*clientv3.Event) {
		gone := make([]kvqueue.Gone, len(events))
		for i, e := range events {
			gone[i] = goneOf(e.Kv)
		}
		report(kvqueue.Event{Gone: gone})
	}
	if w.Aim.Key == "" {
		return s.follow(ctx, s.queue(w.Name), opened, deleted, clientv3.WithPrefix())
	}
	return s.follow(ctx, w.Aim.Key, opened, deleted)
}

// Losses implements kvqueue.Store with one watch of the deletions of all tickets.
func (s *store) Losses(ctx context.Context, _ string, report func(...kvqueue.Loss)) error {
	opened := func(context.Context, int64) error {
		report(kvqueue.Loss{Check: true})
		return nil
	}
	return s.follow(ctx, s.prefix+"/", opened, func(events []*clientv3.Event) {
		losses := make([]kvqueue.Loss, 0, len(events))
		for _, e := range events {
			if name, ok := s.nameOf(string(e.Kv.Key)); ok {
				losses = append(losses, kvqueue.Loss{Name: name, Gone: goneOf(e.Kv)})
			}
		}
		report(losses...)
	}, clientv3.WithPrefix())
}

func goneOf(deleted *mvccpb.KeyValue) kvqueue.Gone {
	return kvqueue.Gone{Key: string(deleted.Key), Before: uint64(deleted.ModRevision)}
}

// follow watches for deletions until ctx ends. If a member does not open the watch in
// time, follow returns an error, and the next watch is likely to be on another member.
func (s *store) follow(ctx context.Context, key string, opened func(context.Context, int64) error,
	deleted func([]*clientv3.Event), opts ...clientv3.OpOption,
) error {
	watched, cancel := context.WithCancel(s.onStream(ctx))
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
			return resp.Err()
		case resp.Created && late.Stop():
			if err := opened(ctx, resp.Header.Revision); err != nil {
				return err
			}
		case len(resp.Events) > 0:
			deleted(resp.Events)
		case resp.Header.Revision == 0 || watched.Err() != nil:
			s.streams.Add(1)
			return errNoAnswer
		}
	}
}

// onStream returns the context of a watch. The client carries all watches whose contexts
// have the same metadata on one stream to one member. With another number it opens
// another stream, most likely to another member.
func (s *store) onStream(ctx context.Context) context.Context {
	ctx = metadata.AppendToOutgoingContext(ctx, "locker-stream", strconv.FormatInt(s.streams.Load(), 10))
	return clientv3.WithRequireLeader(ctx)
}
