package kvqueue

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

var (
	errFakeBusy = errors.New("fake: not now")
	errFakeLost = errors.New("fake: the answer was lost")
)

// fake is a store in memory, whose requests a test can make fail.
type fake struct {
	mu        sync.Mutex
	number    uint64
	queues    map[string][]Ticket
	sessions  map[string]bool
	ttls      map[string]time.Duration // of each session that was opened
	kept      map[string]time.Time     // when each was last kept alive
	opened    int
	tombs     map[string]bool
	blind     bool // puts do not read the queue
	deaf      bool // watches never end
	unwatched bool // watches for losses report nothing
	silent    bool // watches end without reporting what has gone
	stays     bool // watches go on when what they were aimed at has gone
	overlook  bool // the conditions of puts hold, whatever has happened
	changed   chan struct{}
	calls     map[string]int
	// fault, if set, is called before and after each request. An error before the
	// request prevents it, an error after it loses the answer.
	fault func(what, name string, done bool) error
}

func newFake() *fake {
	return &fake{
		queues: make(map[string][]Ticket), sessions: make(map[string]bool), tombs: make(map[string]bool),
		ttls: make(map[string]time.Duration), kept: make(map[string]time.Time),
		changed: make(chan struct{}), calls: make(map[string]int),
	}
}

// errFakeHangs, before a request, leaves it without an answer.
var errFakeHangs = errors.New("hangs")

// request calls f between the two calls of fault.
func (s *fake) request(ctx context.Context, what, name string, f func() error) error {
	s.mu.Lock()
	s.calls[what]++
	fault := s.fault
	s.mu.Unlock()
	if fault != nil {
		err := fault(what, name, false)
		if err == errFakeHangs { //nolint:errorlint // the very error
			<-ctx.Done()
			return ctx.Err()
		}
		if err != nil {
			return err
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	s.mu.Lock()
	err := f()
	if !slices.Contains([]string{"keep", "look", "read", "missing", "tickets", "watch"}, what) {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	s.mu.Unlock()
	if fault != nil && err == nil {
		err = fault(what, name, true)
	}
	return err
}

// lasts returns until when the store keeps a ticket if nobody renews it again.
func (s *fake) lasts(name, id string) time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, t := range s.queues[name] {
		if t.ID == id {
			return s.kept[t.Session].Add(s.ttls[t.Session])
		}
	}
	return time.Time{}
}

func (s *fake) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[what]
}

func (s *fake) with(fault func(what, name string, done bool) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fault = fault
}

func (s *fake) queued(name string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.queues[name])
}

func (s *fake) Agree(context.Context, bool) error { return nil }

func (s *fake) Class(r *driver.Request) (time.Duration, error) {
	return max(r.TTL, r.MinHold), nil
}

func (s *fake) Open(ctx context.Context, class time.Duration) (o Session, err error) {
	err = s.request(ctx, "open", "", func() error {
		s.opened++
		o = Session{ID: fmt.Sprint("s", s.opened), TTL: class}
		s.sessions[o.ID] = true
		s.ttls[o.ID], s.kept[o.ID] = class, time.Now()
		return nil
	})
	return o, err
}

func (s *fake) KeepAlive(ctx context.Context, session string) error {
	return s.request(ctx, "keep", session, func() error {
		if !s.sessions[session] {
			return ErrSessionOver
		}
		s.kept[session] = time.Now()
		return nil
	})
}

func (s *fake) End(ctx context.Context, session string) error {
	return s.request(ctx, "end", session, func() error {
		delete(s.sessions, session)
		for name := range s.queues {
			s.queues[name] = slices.DeleteFunc(s.queues[name], func(t Ticket) bool { return t.Session == session })
		}
		return nil
	})
}

func (s *fake) Key(name, session string, slot int, _ bool) string {
	return fmt.Sprint(name, "/", session, "-", slot)
}

// doPut executes a put, now or late.
func (s *fake) doPut(p *Put) (placed Placed, err error) {
	queue := s.queues[p.Name]
	since, cond := p.If.(uint64)
	switch {
	case !s.sessions[p.Session]:
		return placed, ErrSessionOver
	case s.tombs[p.Session+p.ID]:
		return placed, Refused(driver.ErrLost)
	case slices.ContainsFunc(queue, func(o Ticket) bool { return o.Key == p.Key }):
		return placed, ErrOccupied
	case cond && !s.overlook && len(queue) > 0 && queue[len(queue)-1].Number > since:
		return placed, ErrChanged
	}
	granted := grants(entries(queue), p.Shared, p.Limit)
	s.number++
	t := p.Ticket
	t.Number = s.number
	s.queues[p.Name] = append(queue, t)
	placed = Placed{Number: s.number, Granted: granted}
	if !p.Brief && !granted && !s.blind {
		placed.Queue = &Snapshot{Complete: s.number, Entries: entries(s.queues[p.Name])}
	}
	return placed, nil
}

func (s *fake) Put(ctx context.Context, p *Put) (placed Placed, err error) {
	err = s.request(ctx, "put", p.Name, func() error {
		placed, err = s.doPut(p)
		return err
	})
	return placed, err
}

func (s *fake) Look(ctx context.Context, r *driver.Request) (cond any, err error) {
	err = s.request(ctx, "look", r.Name, func() error {
		cond = s.number
		if !grants(entries(s.queues[r.Name]), r.Shared, r.Limit) {
			return driver.ErrNotAcquired
		}
		return nil
	})
	return cond, err
}

// grants reports whether a ticket after the given entries is granted.
func grants(ahead []Entry, shared bool, limit int) bool {
	queue := make([]driver.Ticket, len(ahead)+1)
	for i, e := range ahead {
		queue[i].Shared = e.Shared
	}
	queue[len(ahead)] = driver.Ticket{Shared: shared, Limit: limit}
	return driver.Grantable(queue, len(ahead))
}

func entries(ts []Ticket) []Entry {
	es := make([]Entry, len(ts))
	for i, t := range ts {
		es[i] = t.Entry
	}
	return es
}

func (s *fake) remove(name string, is func(Ticket) bool) error {
	before := len(s.queues[name])
	s.queues[name] = slices.DeleteFunc(slices.Clone(s.queues[name]), is)
	if len(s.queues[name]) == before {
		return driver.ErrLost
	}
	return nil
}

func (s *fake) Delete(ctx context.Context, t, next *Ticket) (there bool, err error) {
	err = s.request(ctx, "delete", t.Name, func() error {
		there = next != nil && slices.ContainsFunc(s.queues[t.Name], func(o Ticket) bool { return o.Entry == next.Entry })
		return s.remove(t.Name, func(o Ticket) bool { return o.Entry == t.Entry })
	})
	return there, err
}

func (s *fake) Withdraw(ctx context.Context, t *Ticket) error {
	return s.request(ctx, "withdraw", t.Name, func() error {
		s.tombs[t.Session+t.ID] = true
		return s.remove(t.Name, func(o Ticket) bool { return o.Key == t.Key })
	})
}

func (s *fake) Move(ctx context.Context, t *Ticket, to string) error {
	return s.request(ctx, "move", to, func() error {
		i := slices.IndexFunc(s.queues[t.Name], func(o Ticket) bool { return o.Entry == t.Entry })
		switch {
		case i < 0:
			return driver.ErrLost
		case !s.sessions[to]:
			return ErrSessionOver
		}
		s.queues[t.Name][i].Session = to
		return nil
	})
}

func (s *fake) Read(ctx context.Context, name string) (q Snapshot, err error) {
	err = s.request(ctx, "read", name, func() error {
		q = Snapshot{Complete: s.number, Entries: entries(s.queues[name])}
		return nil
	})
	return q, err
}

func (s *fake) Missing(ctx context.Context, ts []Ticket) (missing []int, err error) {
	err = s.request(ctx, "missing", "", func() error {
		for i, t := range ts {
			if !slices.ContainsFunc(s.queues[t.Name], func(o Ticket) bool { return o.Entry == t.Entry }) {
				missing = append(missing, i)
			}
		}
		return nil
	})
	return missing, err
}

func (s *fake) Watch(ctx context.Context, w Watching, report func(Event)) error {
	if err := s.request(ctx, "watch", w.Name, func() error { return nil }); err != nil {
		return err
	}
	s.mu.Lock()
	deaf, silent, stays := s.deaf, s.silent, s.stays
	s.mu.Unlock()
	if deaf {
		<-ctx.Done()
		return ctx.Err()
	}
	for {
		s.mu.Lock()
		now := entries(s.queues[w.Name])
		changed := s.changed
		q := &Snapshot{Complete: s.number, Entries: now}
		s.mu.Unlock()
		switch {
		case w.Aim.Key == "" && w.Complete < q.Complete:
			report(Event{Queue: q})
			w.Complete = q.Complete
		case w.Aim.Key == "":
			report(Event{Queue: q})
		case !slices.Contains(now, w.Aim) && silent:
			return nil
		case !slices.Contains(now, w.Aim):
			report(Event{Gone: []Gone{{Key: w.Aim.Key, Before: w.Aim.Number + 1}}})
			if !stays {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fake) Losses(ctx context.Context, session string, report func()) error {
	for {
		s.mu.Lock()
		changed, there := s.changed, s.sessions[session]
		s.mu.Unlock()
		switch {
		case s.unwatched:
		case !there:
			return ErrSessionOver
		default:
			report()
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (s *fake) Tickets(ctx context.Context, name string) (rs []Record, err error) {
	err = s.request(ctx, "tickets", name, func() error {
		for _, t := range s.queues[name] {
			rs = append(rs, Record{Ticket: t, Shown: driver.Ticket{ID: t.ID, Token: t.Number, Shared: t.Shared, Limit: t.Limit}})
		}
		return nil
	})
	return rs, err
}

func (s *fake) Temporary(err error) bool { return errors.Is(err, errFakeBusy) }
func (s *fake) Explain(err error) error  { return err }
