package sqlqueue

import (
	"context"
	"time"
)

// A Pool lends connections of the user's pool and, while that is exhausted, two beside it: work may hold all connections
// while the locks that protect it have to be renewed. One is for what has to be done in time, which does not take long, and one
// for requests that may wait in the database for as long as their callers do. Requests that wait for one pass it on.
type Pool[C any] struct {
	// Get waits for a connection of the user's pool; free returns it.
	Get func(ctx context.Context) (c C, free func(), err error)
	// Exhausted reports whether a request may have to wait for others; nil: it may.
	Exhausted func() bool

	Open    func(ctx context.Context) (C, error) // opens one beside it
	Close   func(C)                              // closes that
	IsAlive func(C) bool                         // reports whether it may be passed on

	inTime, others spare[C]
}

// A spare is a connection beside the pool.
type spare[C any] struct {
	passed chan C
	opened chan struct{} // held while there is one
}

func newSpare[C any]() spare[C] { return spare[C]{make(chan C), make(chan struct{}, 1)} }

// NewPool makes a Pool of the given functions.
func NewPool[C any](p Pool[C]) *Pool[C] {
	p.inTime, p.others = newSpare[C](), newSpare[C]()
	return &p
}

// Use calls f with a connection.
func (p *Pool[C]) Use(ctx context.Context, f func(C) error) error {
	wait, cancel := ctx, func() {}
	if p.Exhausted == nil || p.Exhausted() {
		wait, cancel = context.WithTimeout(ctx, patience(ctx))
	}
	c, free, err := p.Get(wait)
	tooLong := err != nil && wait.Err() != nil && ctx.Err() == nil
	cancel()
	switch {
	case err == nil:
		returned := false
		defer func() { finally(returned, free) }()
		err = f(c)
		returned = true
		return err
	case tooLong:
		return p.beside(ctx, f)
	}
	return err
}

// beside calls f with a connection beside the pool, which lasts as long as requests wait for it.
func (p *Pool[C]) beside(ctx context.Context, f func(C) error) (err error) {
	var c C
	s, open := &p.others, false
	if ctx.Value(haste{}) == inTime {
		s = &p.inTime
	}
	select {
	case c = <-s.passed:
		open = true
	case s.opened <- struct{}{}:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	passedOn, returned := false, false
	defer func() {
		if passedOn {
			return
		}
		if open {
			finally(returned, func() { p.Close(c) })
		}
		<-s.opened
	}()
	if !open {
		if c, err = p.Open(ctx); err != nil {
			return err
		}
		open = true
	}
	err = f(c)
	returned = true
	if p.IsAlive(c) {
		select {
		case s.passed <- c:
			passedOn = true
		default:
		}
	}
	return err
}

// finally calls free, or after a panic in the user's code has another goroutine call it: database/sql may then
// keep a lock of the connection for ever.
func finally(returned bool, free func()) {
	if returned {
		free()
	} else {
		go free()
	}
}

// patience is how long a request waits for a connection of an exhausted pool before it opens one beside it. Most of ctx's
// time is left for the request itself: the renewal of a short lease has little. A sweep waits.
func patience(ctx context.Context) time.Duration {
	const most = 200 * time.Millisecond
	switch ctx.Value(haste{}) {
	case sweeping:
		return time.Hour
	case forTx:
		return 0
	}
	if end, ok := ctx.Deadline(); ok {
		return min(most, time.Until(end)/4)
	}
	return most
}

// haste is the key of a value in the contexts of requests, which have none otherwise.
type haste struct{}

const (
	inTime   = "in time" // a lease or the tickets of a process end unless it is done
	sweeping = "sweeping"
	forTx    = "for a transaction" // which has a connection, and keeps it meanwhile
)

// ForTx is the context of a request for a transaction of the user, which keeps its connection meanwhile: it does not wait for that.
func ForTx(ctx context.Context) context.Context { return context.WithValue(ctx, haste{}, forTx) }
