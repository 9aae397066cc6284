package lockerotel

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/lockertest"
)

// The queue has the tickets of all processes.
func TestObserveQueues(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := newTelemetry()
		l := lockertest.New()
		defer l.Close()
		other := l.Join()
		defer other.Close()
		stop, err := ObserveQueues(l.Client, []string{"a", "b"}, m.opts...)
		if err != nil {
			t.Fatal(err)
		}
		k := acquire(t, other, "a")
		for range 2 {
			go func() { _, _ = other.Acquire(context.Background(), "a", locker.WithWait(time.Minute)) }()
		}
		synctest.Wait()
		compare(t, m.values(t), map[string]string{
			"locker.queue.length{locker.lock.name=a,locker.ticket.state=held}":    "1",
			"locker.queue.length{locker.lock.name=a,locker.ticket.state=waiting}": "2",
			"locker.queue.length{locker.lock.name=b,locker.ticket.state=held}":    "0",
			"locker.queue.length{locker.lock.name=b,locker.ticket.state=waiting}": "0",
		})
		release(t, k)

		// A store that does not answer delays the collection by a second, not more.
		l.Hang()
		begun := time.Now()
		var all metricdata.ResourceMetrics
		if err := m.reader.Collect(context.Background(), &all); err == nil {
			t.Error("the collection tells no error of the store")
		}
		if d := time.Since(begun); d != queueBound {
			t.Errorf("the collection took %v", d)
		}
		if err := stop.Unregister(); err != nil {
			t.Error(err)
		}
		l.Heal()
		time.Sleep(time.Hour)
	})
}

func TestObserveQueuesRefuses(t *testing.T) {
	if _, err := ObserveQueues(nil, []string{"a"}); err == nil {
		t.Error("no Client: no error")
	}
	l := locker.New(memory.New())
	defer l.Close()
	for _, names := range [][]string{nil, {"a", ""}, {"\xff"}} {
		if _, err := ObserveQueues(l, names); err == nil {
			t.Errorf("names %q: no error", names)
		}
	}
}
