package casqueue

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
)

// lazy is a store that forgets nothing, and marks what it need not keep as Expired.
type lazy struct{ *process }

func (l lazy) Get(ctx context.Context, keys ...string) (docs []Document, err error) {
	err = l.request(ctx, "get", keys[0], func() error {
		docs = nil
		for _, key := range keys {
			d := l.docs[key]
			d.Expired = d.Version != (Version{}) && time.Now().After(d.until)
			docs = append(docs, d.Document)
		}
		return nil
	})
	return docs, err
}

func (l lazy) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (v Version, err error) {
	err = l.request(ctx, "put", key, func() error {
		if l.docs[key].Version != read {
			return ErrChanged
		}
		v = l.write(key, value, keep)
		return nil
	})
	return v, err
}

// A process that only tries gets the lock of a process that died long ago, as on a store that has forgotten it. Its
// token is the next number, whatever the clocks say.
func TestExpiredDocument(t *testing.T) {
	bubble(t, func(b *bed) {
		open := func() *Engine {
			e := New(Options{Store: lazy{&process{fake: b.fake}}, Prefix: "t"})
			b.Cleanup(func() { _ = e.Close() })
			return e
		}
		ahead := fmt.Appendf(nil, `{"v":1,"q":[{"n":"n","l":%d}]}`, time.Now().Add(time.Hour).UnixMicro())
		if err := (&process{fake: b.fake}).Set(b.Context(), "t:q:"+hash("n"), ahead, time.Hour); err != nil {
			b.Fatal(err)
		}
		dead := open()
		g := b.take(dead, request("n", "dead"))
		_ = dead.Close()

		time.Sleep(keepTickets)
		early := open()
		if _, err := early.Acquire(b.Context(), request("n", "early")); !errors.Is(err, driver.ErrNotAcquired) {
			t.Errorf("acquire before the time of the document is over: %v", err)
		}
		time.Sleep(10*time.Second + time.Second)
		if ids := b.queue(early, "n"); len(ids) != 0 { // early has read the document before
			t.Errorf("the queue is %q, though its document has expired", ids)
		}
		other := open()
		if got := b.take(other, request("n", "late")); got.Token != g.Token+1 {
			t.Errorf("token %d after %d, want the next", got.Token, g.Token)
		}
		if ids := b.queue(other, "n"); len(ids) != 1 || ids[0] != "late" {
			t.Errorf("the queue is %q", ids)
		}
	})
}
