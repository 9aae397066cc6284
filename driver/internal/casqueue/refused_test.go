package casqueue

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// unread is a store that refuses to read some documents, and reads the others.
type unread struct {
	*process
	refuses func(key string) bool
}

var errRefused = errors.New("refused")

func (r unread) Get(ctx context.Context, keys ...string) ([]Document, error) {
	docs, err := r.process.Get(ctx, keys...)
	for i := range docs {
		if r.refuses(keys[i]) {
			docs[i] = Document{Err: errRefused}
		}
	}
	return docs, err
}

// A document that the store refuses to read fails its own renewal, and no other one. A refused heartbeat is none that is missing,
// or has not changed.
func TestRefusedDocument(t *testing.T) {
	bubble(t, func(b *bed) {
		var refused atomic.Value
		refused.Store("none")
		store := func(o *Options) {
			o.Store = unread{o.Store.(*process), func(key string) bool { return strings.Contains(key, refused.Load().(string)) }}
		}
		e, _ := b.open(store)
		var rs []driver.Renewal
		for i := range 5 {
			r := request(fmt.Sprint("n", i), fmt.Sprint(i))
			rs = append(rs, driver.Renewal{Hold: r.Hold(b.take(e, r).Token), TTL: r.TTL})
		}
		rs = append(rs, driver.Renewal{Hold: driver.Hold{Name: "n2", ID: "another"}, TTL: time.Second})
		refused.Store(hash("n2"))
		time.Sleep(time.Second)
		for i, err := range e.RenewAll(b.Context(), rs) {
			if of := rs[i].Name == "n2"; of != (err != nil) || of && (!errors.Is(err, errRefused) || errors.Is(err, driver.ErrLost)) {
				b.Errorf("renewal of %s: %v", rs[i].Name, err)
			}
		}
		if _, err := e.Inspect(b.Context(), "n2"); !errors.Is(err, errRefused) {
			b.Errorf("a queue that was not read: %v", err)
		}

		other, _ := b.open(store)
		got := b.waits(other, request("n1", "waiter"))
		time.Sleep(3 * time.Second)
		refused.Store(":h:" + e.process)
		for range 10 {
			time.Sleep(3 * time.Second)
			if err := errors.Join(e.RenewAll(b.Context(), rs[:5])...); err != nil {
				b.Fatal(err)
			}
		}
		refused.Store("none")
		select {
		case err := <-got:
			b.Fatalf("granted beside a holder: %v", err)
		default:
		}
		if err := errors.Join(e.Release(b.Context(), rs[1].Hold), <-got); err != nil {
			b.Error(err)
		}
	})
}

// Who waits in several queues removes what has expired in those that were read.
func TestExpiredBesideRefusedDocument(t *testing.T) {
	bubble(t, func(b *bed) {
		holder, _ := b.open()
		b.take(holder, request("a", "1"))
		b.take(holder, request("b", "2"))
		var refused atomic.Bool
		e, _ := b.open(func(o *Options) {
			o.Store = unread{o.Store.(*process), func(key string) bool { return refused.Load() && strings.Contains(key, hash("b")) }}
		})
		free, taken := b.waits(e, request("a", "3")), b.waits(e, request("b", "4"))
		refused.Store(true)
		begun := time.Now()
		if err := <-free; err != nil { // the holder sends no sign of life
			b.Fatal(err)
		}
		if took, bound := time.Since(begun), e.Bounds(10*time.Second).Crash; took > bound {
			b.Errorf("granted after %v, and the bound is %v", took, bound)
		}
		refused.Store(false)
		if err := <-taken; err != nil {
			b.Error(err)
		}
	})
}
