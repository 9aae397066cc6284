package election

import (
	"context"
	"errors"
	"strconv"
	"sync"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/retry"
)

// A leader announces its term by two more locks, which observers find by the
// token of the term:
//
//   - The term lock is held exclusively, and observers wait for it as readers:
//     they wake up when it is released.
//   - The note lock, after a proclamation, is a ticket with the leader's new
//     note. Nobody waits for it.
//
// Each proclamation has a term lock of its own, whose name has the token of the
// note lock. So if that lock was released after an observer inspected the election,
// the observer does not wait for it at all: it misses nothing.
//
// The lease of the term lock is a third shorter than the leader's. A leader that
// dies has at least two thirds of its lease left, so observers wake up before the
// next leader is elected. The lease of the note lock is longer than the leader's,
// so that a dead leader's old note is not seen again.

func (e *Election) noteName(term uint64) string {
	return e.name + "#note/" + strconv.FormatUint(term, 10)
}

// termName is the name of the term lock for the token of a note lock; 0: there is none.
func (e *Election) termName(term, note uint64) string {
	name := e.name + "#term/" + strconv.FormatUint(term, 10)
	if note != 0 {
		name += "/" + strconv.FormatUint(note, 10)
	}
	return name
}

// maxName is the longest name of an election: the longest of these suffixes fits too.
const maxName = maxText - len("#term/18446744073709551615/18446744073709551615")

// proclamation is what is to be announced. The first one of a term does not change
// the note.
type proclamation struct {
	changed bool
	note    string
	done    chan struct{} // closed when it is announced
}

// announcement is what a leader holds to announce its term.
type announcement struct{ term, note *locker.Lock } // note is nil at first

// announce keeps the term announced until ctx ends.
func (t *Term) announce(ctx context.Context) {
	p := proclamation{done: make(chan struct{})}
	var now announcement
	defer func() { now.end(ctx) }()
	pause := newBackoff()
	for ctx.Err() == nil {
		next, err := t.hold(ctx, p)
		switch {
		case errors.Is(err, locker.ErrClosed):
			return
		case err != nil:
			retry.Sleep(ctx, pause.Next(), nil)
			continue
		}
		now.end(ctx)
		now = next
		pause.Reset()
		select {
		case <-p.done: // announced again after a loss
		default:
			close(p.done)
		}
		select {
		case p = <-t.notes:
		case <-now.term.Done():
		case <-now.noteDone():
		case <-ctx.Done():
		}
	}
}

// hold acquires the locks that announce p.
func (t *Term) hold(ctx context.Context, p proclamation) (a announcement, err error) {
	e, version := t.e, uint64(0)
	if p.changed {
		a.note, err = locker.NewRWMutex(e.l, e.noteName(t.Token())).RLock(ctx, e.ticket(p.note, 2*e.ttl)...)
		if err != nil {
			return announcement{}, err
		}
		version = a.note.Token()
	}
	term := locker.NewMutex(e.l, e.termName(t.Token(), version))
	a.term, err = term.Lock(ctx, e.ticket("", e.ttl-e.ttl/3)...)
	if errors.Is(err, locker.ErrInvalidOption) { // the safety margin is longer than that
		a.term, err = term.Lock(ctx, e.ticket("", e.ttl)...)
	}
	if err != nil {
		a.end(ctx)
		return announcement{}, err
	}
	return a, nil
}

// end releases the announcement. If another one replaces it, that is held already.
func (a announcement) end(ctx context.Context) {
	var group sync.WaitGroup
	defer group.Wait()
	for _, k := range []*locker.Lock{a.term, a.note} {
		if k != nil {
			group.Go(func() { _ = k.Release(ctx) }) // at the latest its lease ends
		}
	}
}

func (a announcement) noteDone() <-chan struct{} {
	if a.note == nil {
		return nil
	}
	return a.note.Done()
}
