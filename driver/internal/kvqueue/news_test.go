package kvqueue

import (
	"bytes"
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// watchers returns how many goroutines watch queues.
func watchers() int {
	stacks := make([]byte, 1<<20)
	return bytes.Count(stacks[:runtime.Stack(stacks, true)], []byte("(*watcher).run("))
}

// A queue in which nobody waits any more is watched for a while, and then forgotten.
func TestWatcherEnds(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		for _, name := range []string{"a", "b"} {
			h := b.get(other, request(name, name+"0"))
			w := b.wait(b.e, request(name, name+"1"))
			b.drop(other, h)
			b.granted(w, true)
			b.drop(b.e, w.r.Hold(0))
		}
		if n := watchers(); n != 2 {
			t.Errorf("%d queues are watched, want two", n)
		}
		time.Sleep(linger + time.Millisecond)
		synctest.Wait()
		b.e.mu.Lock()
		defer b.e.mu.Unlock()
		if n := watchers(); n > 0 || len(b.e.queues) > 0 {
			t.Errorf("%d queues are watched, %d known, want none", n, len(b.e.queues))
		}
	})
}

// A watch that ends without news, after one that had some, has the queue read.
func TestWatchEndsAfterNews(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h, ahead := b.get(other, request("a", "0")), b.wait(other, request("a", "1"))
		w := b.wait(b.e, request("a", "2"))
		b.store.with(func(what, _ string, _ bool) error {
			if what == "watch" {
				b.store.mu.Lock()
				defer b.store.mu.Unlock()
				b.store.silent = true // from the next watch on
			}
			return nil
		})
		ahead.cancel()
		b.drop(other, ahead.r.Hold(0)) // which is news: the ticket next ahead of w has gone
		synctest.Wait()
		b.drop(other, h)
		time.Sleep(retryFirst)
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}

// When the ticket at which a watch is aimed has gone, and others are still ahead, the watch is aimed at the next of them, though the
// store would go on with the first.
func TestWatchIsAimedAgain(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.stays = true
		other := b.another()
		h, ahead := b.get(other, request("a", "0")), b.wait(other, request("a", "1"))
		w := b.wait(b.e, request("a", "2"))
		ahead.cancel()
		b.drop(other, ahead.r.Hold(0))
		synctest.Wait()
		b.drop(other, h)
		b.granted(w, true) // at once
		b.drop(b.e, w.r.Hold(0))
	})
}

// While a queue cannot be read, after news of it, it is asked for with pauses. The waiter is granted when it can be read.
func TestQueueCannotBeRead(t *testing.T) {
	inBubble(t, func(b *bed) {
		other := b.another()
		h := b.get(other, request("a", "0"))
		w := b.wait(b.e, request("a", "1"))
		b.store.with(func(what, _ string, done bool) error {
			if what == "read" && !done {
				time.Sleep(time.Millisecond)
				return errFakeLost
			}
			return nil
		})
		before := b.store.count("read")
		b.drop(other, h)
		time.Sleep(10 * time.Second)
		b.granted(w, false)
		if n := b.store.count("read") - before; n > 10*int(time.Second/retryMost)*2 {
			t.Errorf("it was asked for %d times in 10 s", n)
		}
		b.store.with(nil)
		time.Sleep(retryMost)
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}

// opening is a store whose watches begin with a reading, as those of etcd do.
type opening struct{ *fake }

func (s opening) Watch(ctx context.Context, w Watching, report func(Event)) error {
	opened, cancel := context.WithTimeout(ctx, w.Bound)
	defer cancel()
	if _, err := s.Read(opened, w.Name); err != nil {
		return err
	}
	return s.fake.Watch(ctx, w, report)
}

// If the store is slow, what a watch reads first may take as long as a reading of the queue, else the watch would never be opened, and
// the queue read again and again.
func TestWatchOfASlowStore(t *testing.T) {
	inBubble(t, func(b *bed) {
		b.store.with(func(what, _ string, done bool) error {
			if what == "read" && !done {
				time.Sleep(tryBound * 3 / 2)
			}
			return nil
		})
		b.e.store, b.e.opts.Recheck = opening{b.store}, time.Hour
		other := b.another()
		h := b.get(other, request("a", "0"))
		w := b.wait(b.e, request("a", "1"))
		time.Sleep(time.Minute)
		if n := b.store.count("read"); n > 3 {
			t.Errorf("%d readings in a minute, want one that is too slow, one of the queue, and one of the watch", n)
		}
		b.drop(other, h)
		time.Sleep(2 * tryBound) // if it has to be read
		b.granted(w, true)
		b.drop(b.e, w.r.Hold(0))
	})
}
