package kvqueue

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// exact is a store whose watches for losses report breaks of their session and nothing else,
// are cut now and then, and whose requests take a while and may fail.
type exact struct {
	*fake
	rng    *rand.Rand
	broken map[string]int // breaks, by session
	faulty bool
}

// upTo returns a random duration.
func (s *exact) upTo(d time.Duration) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Duration(s.rng.Int64N(int64(d)))
}

// fails reports whether a request fails.
func (s *exact) fails() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.faulty && s.rng.IntN(4) == 0
}

// disturb is the fake's fault.
func (s *exact) disturb(what, _ string, _ bool) error {
	time.Sleep(s.upTo(time.Second))
	if what == "missing" && s.fails() {
		return errFakeLost
	}
	return nil
}

// breaks removes a ticket, and notifies the session that it is on.
func (s *exact) breaks(id string) (done bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, queue := range s.queues {
		i := slices.IndexFunc(queue, func(t Ticket) bool { return t.ID == id })
		if i < 0 {
			continue
		}
		s.broken[queue[i].Session]++
		_ = s.remove(name, func(t Ticket) bool { return t.ID == id })
		close(s.changed)
		s.changed = make(chan struct{})
		return true
	}
	return false
}

func (s *exact) Losses(ctx context.Context, session string, report func()) error {
	time.Sleep(s.upTo(time.Second))
	end := time.After(time.Minute)
	if s.fails() {
		end = time.After(s.upTo(5 * time.Second))
	}
	for known := -1; ; {
		s.mu.Lock()
		changed, there, now := s.changed, s.sessions[session], s.broken[session]
		s.mu.Unlock()
		switch {
		case !there:
			return ErrSessionOver
		case now != known:
			known = now
			time.Sleep(s.upTo(500 * time.Millisecond)) // the report is under way
			report()
			continue
		}
		select {
		case <-changed:
		case <-end:
			return errFakeLost
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// lived is a lock of TestBreaksAreTold. mu guards the rest.
type lived struct {
	r      driver.Request
	mu     sync.Mutex
	told   bool // by an answer
	lost   bool // by a notification
	broken bool
}

// live acquires the lock.
func (l *lived) live(b *bed, s *exact) {
	time.Sleep(s.upTo(3 * time.Second))
	_, err := b.e.Acquire(b.Context(), l.r)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.told = err != nil
}

// die breaks the lock, if it is there by then.
func (l *lived) die(s *exact) {
	time.Sleep(s.upTo(12 * time.Second))
	done := s.breaks(l.r.ID)
	l.mu.Lock()
	defer l.mu.Unlock()
	l.broken = done
}

// Whatever a break meets, the holder learns of it by an answer or a notification, without a
// renewal on schedule.
func TestBreaksAreTold(t *testing.T) {
	for seed := range uint64(2000) {
		inBubble(t, func(b *bed) { breaksAreTold(b, seed) })
	}
}

func breaksAreTold(b *bed, seed uint64) {
	s := &exact{fake: b.store, rng: rand.New(rand.NewPCG(seed, 0)), broken: make(map[string]int), faulty: true} //nolint:gosec // a test
	b.e.store, b.e.opts.LookFor = s, 1
	s.with(s.disturb)
	lives := make(map[string]*lived) // by ID
	b.e.NotifyLoss(func(h driver.Hold, _ error) {
		l := lives[h.ID]
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lost = true
	})
	for i := range 5 {
		l := &lived{r: request(fmt.Sprint("name-", i), fmt.Sprint(i))}
		l.r.Renewed = s.upTo(2) == 0
		if s.upTo(2) == 0 {
			l.r.TTL = time.Minute
		}
		lives[l.r.ID] = l
	}
	var group sync.WaitGroup
	for _, l := range lives {
		group.Go(func() { l.live(b, s) })
		group.Go(func() { l.die(s) })
	}
	group.Wait()
	s.mu.Lock()
	s.faulty = false
	s.mu.Unlock()
	time.Sleep(20 * time.Second)
	synctest.Wait()
	for _, l := range lives {
		l.mu.Lock()
		switch {
		case l.broken && !l.lost && !l.told:
			b.Errorf("seed %d: the holder of %s (renewed %v) was not told", seed, l.r.Name, l.r.Renewed)
		case !l.broken && l.lost:
			b.Errorf("seed %d: the loss of %s was reported", seed, l.r.Name)
		}
		l.mu.Unlock()
	}
	s.with(nil)
}
