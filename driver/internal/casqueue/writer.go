package casqueue

import (
	"context"
	"errors"
	"math/rand/v2"
	"os"
	"slices"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

const (
	tries      = 3                      // of a request that fails; one that the store does not answer in time counts as two
	retryFirst = 20 * time.Millisecond  // pause before the second try
	conflict   = 500 * time.Microsecond // the mean pause after a conflict, doubled with each one; and for each ticket queued
	slowest    = 20 * time.Millisecond  // the same for a store that takes so long to answer, or longer
	conflicts  = 10                     // the pause is doubled at most so often; conflict, doubled so often, is the longest
	urgent     = 3                      // the same for changes that others wait for
)

// errStale says that a change needs a document that was read after the change was asked for.
var errStale = errors.New("the document has to be read")

// file is a document as this process knows it, and the changes that this process makes. Engine.mu guards it.
type file struct {
	key     string
	doc     *document
	version Version
	bytes   int   // the size of that version
	known   bool  // doc and version may be current
	broken  error // why the document cannot be read

	notOlderThan time.Time // readings that were begun before this are dropped: what they have found may be older than doc
	putSent      time.Time // when this process sent the last Put that was done

	own []*ticket // this process's tickets that wait or are held

	sharing bool      // share runs
	told    time.Time // when this process last told others what it has observed, or found that they know it

	changes   []*change
	writing   bool          // a goroutine makes the changes
	skipPause chan struct{} // ends its pause

	// If unanswered, a Put that replaces that version was not answered. The store may still do it until the
	// document has another version, so the next change is written even if it changes nothing.
	unanswered bool
	replaces   Version
}

// change is a change of a document that a caller wants. Changes that are requested while another one is being written
// are written together.
type change struct {
	ctx context.Context

	// apply makes the change, and reports whether it changed anything. It may be called several times, on copies
	// that are not written. It returns errStale if it needs a fresh document. Engine.mu is held.
	apply func(d *document, fresh bool) (changed bool, err error)
	// done, if set, is called once, with mu held. It gets the time when the Put was sent, or zero if no Put was
	// necessary, and the error of apply or of the store.
	done func(sent time.Time, err error)

	urgent bool // others wait for it
	queues bool // it queues a ticket
	waits  bool // … that has to wait, and this process had none there
	err    error
	ended  chan struct{}
	did    bool // it has changed the document that is being written
	unsure bool // a Put that it has changed was not answered
}

// file returns the file of a name.
func (e *Engine) file(name string) *file {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.fileOf(e.key(name))
}

// fileOf returns the file with a key. With mu held.
func (e *Engine) fileOf(key string) *file {
	e.forgetFiles()
	f := e.files[key]
	if f == nil {
		f = &file{key: key, doc: &document{Format: format}, skipPause: make(chan struct{}, 1)}
		e.files[key] = f
	}
	return f
}

// submit asks for a change. After Close the change is dropped: the contexts of all callers end then. With mu held.
func (e *Engine) submit(f *file, c *change) {
	c.ended = make(chan struct{})
	if f.writing = f.writing || e.life.Go(func() { e.write(f) }); !f.writing {
		return
	}
	f.changes = append(f.changes, c)
	if c.urgent {
		select {
		case f.skipPause <- struct{}{}:
		default:
		}
	}
}

// change makes a change and returns its error.
func (e *Engine) change(ctx context.Context, key string, c *change) error {
	c.ctx = ctx
	e.mu.Lock()
	e.submit(e.fileOf(key), c)
	e.mu.Unlock()
	return e.await(ctx, c)
}

// await waits for a change, and returns its error.
func (e *Engine) await(ctx context.Context, c *change) error {
	select {
	case <-c.ended:
		return e.failed(ctx, c.err)
	case <-ctx.Done():
		return e.failed(ctx, ctx.Err())
	}
}

// write makes the changes of a file until there are none.
func (e *Engine) write(f *file) {
	for {
		e.mu.Lock()
		batch := f.asked()
		f.writing = len(batch) > 0
		e.mu.Unlock()
		if len(batch) == 0 {
			return
		}
		e.commit(f, batch)
	}
}

// asked takes the changes that were requested meanwhile. With mu held.
func (f *file) asked() []*change {
	batch := f.changes
	f.changes = nil
	select {
	case <-f.skipPause:
	default:
	}
	return batch
}

// commit makes changes, and those that are requested while it pauses. It tries again whenever another process was faster.
func (e *Engine) commit(f *file, batch []*change) {
	fresh := false // the document was read for these changes
	for conflicted, failed := 0, 0; ; {
		if batch = e.wanted(batch); len(batch) == 0 {
			return
		}
		begun := time.Now()
		err := e.attempt(f, batch, fresh)
		switch {
		case err == nil:
			return
		case errors.Is(err, errStale):
			continue
		case errors.Is(err, ErrChanged):
			conflicted++
			if conflicted > 1 {
				retry.Sleep(e.life, rand.N(e.backoff(f, batch, conflicted, time.Since(begun)/2)), f.skipPause) //nolint:gosec // no secret
			}
			e.mu.Lock()
			more := f.asked()
			f.known = f.known && conflicted == 1 // after a pause it has probably changed again
			fresh = f.known && len(more) == 0 && errors.As(err, new(*Changed))
			e.mu.Unlock()
			batch = append(batch, more...)
			continue
		case errors.Is(err, ErrTooLarge) && len(batch) > 1:
			half := len(batch) / 2
			e.commit(f, batch[:half])
			e.commit(f, batch[half:])
			return
		}
		if failed++; errors.Is(err, os.ErrDeadlineExceeded) {
			failed++ // a cluster that has just lost a message answers the next one; a server that stands still answers none
		}
		if failed >= tries || errors.Is(err, ErrTooLarge) || e.life.Closed() {
			e.answer(f, batch, time.Time{}, err)
			return
		}
		retry.Sleep(e.life, retryFirst<<failed, nil)
	}
}

// backoff is the longest pause after a conflict. It doubles with each conflict, and grows with the time that the store
// takes for a request. It is short for a change that others wait for. For any other change it grows with the length of
// the queue, up to twice, because a queue grows when many processes enqueue at once.
func (e *Engine) backoff(f *file, batch []*change, conflicted int, request time.Duration) time.Duration {
	unit, longest := max(conflict, min(request, slowest)), conflict<<conflicts
	if slices.ContainsFunc(batch, func(c *change) bool { return c.urgent }) {
		return min(unit<<min(conflicted, urgent), longest)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return min(unit<<min(conflicted, conflicts), longest) + min(unit*time.Duration(f.doc.size()), longest)
}

// wanted leaves out the changes whose callers have left. If such a change was made, the core releases the ticket.
func (e *Engine) wanted(batch []*change) (wanted []*change) {
	for _, c := range batch {
		if c.ctx.Err() == nil {
			wanted = append(wanted, c)
			continue
		}
		e.answer(nil, []*change{c}, time.Time{}, c.ctx.Err())
	}
	return wanted
}

// attempt makes changes once. If fresh is set, the document that is known was read after they were asked for.
func (e *Engine) attempt(f *file, batch []*change, fresh bool) error {
	e.mu.Lock()
	known := f.known
	e.mu.Unlock()
	if !known {
		fresh = true
		if err := e.read(e.life, f); err != nil {
			return err
		}
	}
	e.mu.Lock()
	before, version := f.doc, f.version
	next, changed := before.clone(), f.unanswered
	for _, c := range batch {
		did, err := c.apply(next, fresh)
		if errors.Is(err, errStale) {
			f.known = false
			e.mu.Unlock()
			return err
		}
		c.err, c.did, changed = err, did, changed || did
	}
	if changed {
		f.notOlderThan = time.Now() // what was replaced before must not be taken for newer than what is replaced now
	}
	e.mu.Unlock()
	if !changed {
		e.answer(f, batch, time.Time{}, nil)
		return nil
	}
	err := e.put(f, version, before, next, batch)
	if errors.Is(err, ErrTooLarge) && !fresh {
		return errStale // others may have left
	}
	return err
}

// put writes next in place of before. When the answer comes, a reading may already have put next, or a newer document,
// into f.
func (e *Engine) put(f *file, read Version, before, next *document, batch []*change) error {
	value, err := next.encode()
	if err != nil {
		return err
	}
	if slices.ContainsFunc(batch, func(c *change) bool { return c.queues }) {
		value = append(value, spare(value)...)
	}
	if e.opts.LatePuts && read == (Version{}) {
		if read, err = e.create(f); err != nil {
			return err // no change of the batch was sent
		}
	}
	put := e.store.Put
	b, blind := e.store.(Blind)
	if blind = blind && !slices.ContainsFunc(batch, func(c *change) bool { return !c.waits }); blind {
		put = b.PutBlind
	}
	sent := time.Now()
	version, err := put(e.life, f.key, value, read, next.keep())
	e.answered(err)
	e.mu.Lock()
	switch {
	case errors.Is(err, ErrChanged), errors.Is(err, ErrTooLarge): // nothing was done
		f.known = false
		if c := (*Changed)(nil); errors.As(err, &c) {
			e.took(f, c.Now, sent)
		}
		e.mu.Unlock()
		return err
	case err != nil:
		if f.version.Number == read.Number { // else the Put has been done, or cannot be done any more
			f.unanswered, f.replaces = true, read
		}
		for _, c := range batch {
			c.unsure = c.unsure || c.did
		}
		e.mu.Unlock()
		return err
	}
	f.unanswered = false
	f.putSent, f.notOlderThan = sent, time.Now() // readings that were begun before may have found what was replaced
	if f.version.Number == read.Number {
		f.doc, f.version, f.known = next, version, !blind
		f.bytes = len(value)
	}
	e.notifyAll(before, next)
	e.mu.Unlock()
	e.answer(f, batch, sent, nil)
	return nil
}

// create creates a document without tickets. A Put that creates is the only one whose condition may come true again.
func (e *Engine) create(f *file) (Version, error) {
	version, err := e.store.Put(e.life, f.key, nil, Version{}, keepEmpty)
	e.answered(err)
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case err != nil:
		f.known = false
	case f.version == (Version{}):
		f.version, f.notOlderThan = version, time.Now() // a reading may still come that has found none
	}
	return version, err
}

// answer ends changes with their own errors or, if err is set, with that.
func (e *Engine) answer(f *file, batch []*change, sent time.Time, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, c := range batch {
		if err != nil {
			c.err = err
		}
		if c.done != nil {
			c.done(sent, c.err)
		}
		close(c.ended)
	}
	if f != nil && err == nil {
		e.learn(f)
	}
}
