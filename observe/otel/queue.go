package lockerotel

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.opentelemetry.io/otel/metric"

	"github.com/lockerproject/locker"
)

// queueBound is how long one collection waits for the store, so that an outage does not
// make a scrape time out, with all other metrics.
const queueBound = time.Second

// ObserveQueues measures the queues of the named locks: locker.queue.length is the number
// of their tickets, of all processes, with the attributes locker.lock.name and
// locker.ticket.state (held or waiting). At each collection it asks the store of l once for
// each name, within a second for all of them; it is for a few names that matter. One
// process of many is enough: others see the same.
//
// Unregister the registration before l is closed.
func ObserveQueues(l *locker.Client, names []string, opts ...Option) (metric.Registration, error) {
	if l == nil {
		return nil, errors.New("lockerotel: ObserveQueues: the Client is nil")
	}
	if len(names) == 0 {
		return nil, errors.New("lockerotel: ObserveQueues: no names")
	}
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	for _, name := range names {
		if _, err := l.Inspect(ended, name); errors.Is(err, locker.ErrInvalidName) { // no store is asked
			return nil, fmt.Errorf("lockerotel: ObserveQueues: %w", err)
		}
	}
	c := newConfig(opts)
	m := c.meters.Meter(scope)
	length, err := m.Int64ObservableGauge("locker.queue.length", metric.WithUnit("{ticket}"),
		metric.WithDescription("Tickets in the queues of the named locks, of all processes."))
	if err != nil {
		return nil, fmt.Errorf("lockerotel: %w", err)
	}
	names = slices.Clone(names)
	store := keyStore.String(c.storeOf(l.Store()))
	return m.RegisterCallback(func(ctx context.Context, to metric.Observer) error {
		ctx, cancel := context.WithTimeout(ctx, queueBound)
		defer cancel()
		for _, name := range names {
			q, err := l.Inspect(ctx, name)
			if err != nil {
				return err // the names after it would fail too
			}
			held := 0
			for _, t := range q.Tickets {
				if t.Held {
					held++
				}
			}
			attributes := metric.WithAttributes(store, keyName.String(name))
			to.ObserveInt64(length, int64(held), attributes, metric.WithAttributes(keyState.String("held")))
			to.ObserveInt64(length, int64(len(q.Tickets)-held), attributes, metric.WithAttributes(keyState.String("waiting")))
		}
		return nil
	}, length)
}
