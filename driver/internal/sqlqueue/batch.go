package sqlqueue

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A Batcher is a Store that executes several requests in one transaction. The engine uses it for what many goroutines
// ask at the same time: while a batch is under way, further requests wait, and go together in the next one. A request
// that comes alone is sent by itself at once.
//
// A batch must not wait for one of its names. So it does only what nobody is in the way of, and waits for no lock in the
// database: everything else is sent by itself, as it would be without batches.
type Batcher interface {
	// Batch executes requests for exclusive tickets of different names, in one transaction. It calls requests when the
	// statement is about to be sent, and again if it sends another one after a refusal. There is one answer for each request.
	Batch(ctx context.Context, process int64, requests func() []BatchRequest) ([]BatchAnswer, error)
}

// A BatchRequest is a request for an exclusive ticket, or for its removal.
type BatchRequest struct {
	Name, ID    string
	Remove      bool
	TTL         time.Duration
	Owner, Note string
	Until       int64 // see Store.Take
}

// A BatchAnswer is the answer to one of them.
type BatchAnswer struct {
	Alone   bool // it had no effect: it would have to wait, there are other tickets, or the ticket may be granted to others
	Answer       // to Take: Granted or Late, without grants
	Removal      // to Remove: nobody waited, so there are no grants
}

const (
	singlesMost = 2  // requests under way by themselves, while there is no batch
	batchesMost = 2  // batches under way
	batchMost   = 16 // requests in one; the database has bounds for the locks of all transactions

	batchPatience = 200 * time.Millisecond // how long a request waits for a batch before it is sent by itself
	batchBound    = 10 * time.Second       // of a batch, which outlives the contexts of its requests
)

// batches sends requests, alone or together.
type batches struct {
	store   Batcher
	current func() int64 // the ID of the process

	mu      sync.Mutex
	singles int
	running int
	waiting []*member
	names   map[string]struct{} // of those that wait
}

// A member is a request of a batch.
type member struct {
	BatchRequest
	until func() int64  // of Take; see there
	done  chan struct{} // closed: it has a result
	sent  time.Time     // with mu held
	left  bool          // its caller has left; with mu held

	result batched
}

// batched is what has become of a request.
type batched struct {
	answer BatchAnswer
	sent   time.Time // zero: it was not sent
	err    error
}

// do executes a request in a batch, or by alone. It reports false if alone has done so.
func (b *batches) do(ctx context.Context, q BatchRequest, until func() int64, alone func()) (r batched, together bool) {
	m := &member{BatchRequest: q, until: until, done: make(chan struct{})}
	if !b.join(m) {
		alone()
		b.mu.Lock()
		defer b.mu.Unlock()
		b.singles--
		return r, false
	}
	if r, together = b.wait(ctx, m); !together || r.answer.Alone {
		alone()
		return r, false
	}
	return r, true
}

// join makes a request wait for the next batch. It reports false if the request is to be sent by itself.
func (b *batches) join(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if _, same := b.names[m.Name]; same || b.running == 0 && b.singles < singlesMost {
		b.singles++
		return false
	}
	b.waiting = append(b.waiting, m)
	b.names[m.Name] = struct{}{}
	if b.running < batchesMost {
		b.running++
		go b.run() // it ends with the last request
	}
	return true
}

// wait waits for the result. It reports false if the request is not sent, since the batches under way take too long.
func (b *batches) wait(ctx context.Context, m *member) (r batched, sent bool) {
	late := time.NewTimer(batchPatience)
	defer late.Stop()
	select {
	case <-m.done:
		return m.result, true
	case <-late.C:
		if b.withdraw(m) {
			return r, false
		}
	case <-ctx.Done():
	}
	select {
	case <-m.done:
		return m.result, true
	case <-ctx.Done():
	}
	b.withdraw(m)
	b.mu.Lock()
	defer b.mu.Unlock()
	m.left = true
	return batched{sent: m.sent, err: context.Cause(ctx)}, true
}

// withdraw removes a request that waits for a batch. It reports false if the request is under way.
func (b *batches) withdraw(m *member) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := slices.Index(b.waiting, m)
	if i < 0 {
		return false
	}
	b.waiting = slices.Delete(b.waiting, i, i+1)
	delete(b.names, m.Name)
	return true
}

// run sends batches until nothing waits.
func (b *batches) run() {
	for more := true; more; {
		b.send()
		b.mu.Lock()
		if more = len(b.waiting) > 0; !more {
			b.running--
		}
		b.mu.Unlock()
	}
}

// send sends what waits when there is a connection. A request whose caller leaves later stays in the batch: its answer is
// lost, like that of a request that was sent by itself.
func (b *batches) send() {
	ctx, cancel := context.WithTimeout(context.Background(), batchBound)
	defer cancel()
	var members []*member
	answers, err := b.store.Batch(ctx, b.current(), func() []BatchRequest {
		if members == nil {
			members = b.take()
		}
		return b.requests(members)
	})
	if members == nil { // nothing was sent
		members = b.take()
	}
	for i, m := range members {
		m.result = batched{sent: m.sent, err: err}
		if err == nil {
			m.result.answer = answers[i]
		}
		close(m.done)
	}
}

// take takes the requests of the next batch.
func (b *batches) take() []*member {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := min(len(b.waiting), batchMost)
	members := slices.Clone(b.waiting[:n])
	b.waiting = slices.Delete(b.waiting, 0, n)
	for _, m := range members {
		delete(b.names, m.Name)
	}
	return members
}

// requests returns the requests as they are sent now. If a caller has left before, a request for a ticket is too late.
func (b *batches) requests(members []*member) []BatchRequest {
	b.mu.Lock()
	defer b.mu.Unlock()
	qs := make([]BatchRequest, 0, len(members))
	for _, m := range members {
		q := m.BatchRequest
		if m.until != nil && !m.left {
			m.sent = time.Now()
			q.Until = m.until()
		}
		qs = append(qs, q)
	}
	return qs
}

// takeOnce is Take of the store, perhaps in a batch. For a name that others of this process wait for it is not.
func (e *Engine) takeOnce(ctx context.Context, process int64, r driver.Request, until func() int64) (a Answer, err error) {
	alone := func() { a, err = e.store.Take(ctx, process, r, until) }
	if e.batches == nil || r.Shared || e.book.isWaitedFor(r.Name) {
		alone()
		return a, err
	}
	q := BatchRequest{Name: r.Name, ID: r.ID, TTL: r.TTL, Owner: r.Owner, Note: r.Note}
	if b, together := e.batches.do(ctx, q, until, alone); together {
		a, err = b.answer.Answer, b.err
		a.Sent = b.sent
	}
	return a, err
}

// removeOnce is Remove of the store, perhaps in a batch.
func (e *Engine) removeOnce(ctx context.Context, h driver.Hold) (r Removal, err error) {
	alone := func() { r, err = e.store.Remove(ctx, e.book.current(), h) }
	if e.batches == nil || h.Shared || h.Token == 0 || e.book.isWaitedFor(h.Name) {
		alone()
		return r, err
	}
	if b, together := e.batches.do(ctx, BatchRequest{Name: h.Name, ID: h.ID, Remove: true}, nil, alone); together {
		r, err = b.answer.Removal, b.err
	}
	return r, err
}

// isWaitedFor reports whether tickets of this process wait for a name.
func (b *book) isWaitedFor(name string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.byName[name] != nil
}
