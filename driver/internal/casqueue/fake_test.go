package casqueue

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
)

// fake is a store in memory.
type fake struct {
	mu      sync.Mutex
	docs    map[string]fakeDocument
	number  uint64
	calls   map[string]int
	changed chan struct{} // nil while nobody watches
	most    int           // bytes of a document
	mute    bool          // it does not say what has changed
	clock   string        // its clock; "": it cannot be read
	ahead   time.Duration // what it shows, less the time
	coarse  time.Duration // it shows multiples of this
}

type fakeDocument struct {
	Document
	until time.Time
}

func newFake() *fake {
	return &fake{docs: make(map[string]fakeDocument), calls: make(map[string]int), most: 10_000, clock: "fake"}
}

var (
	errNotDone  = errors.New("fake: the request was lost")
	errNoAnswer = errors.New("fake: the answer was lost")
	errSilent   = fmt.Errorf("fake: no answer in time: %w", os.ErrDeadlineExceeded)
)

const silence = 2 * time.Second // the timeout of a request

// fault is what happens to a request.
type fault uint8

const (
	fine     fault = iota
	notDone        // it is never done
	noAnswer       // it is done, and its answer is lost
	late           // it is not answered, and is done when the test calls process.arrive
	slow           // it is done, and answered later
	slowLoss       // it is done, and its answer is lost later
	stands         // it is done, and its answer is read much later
	never          // it is neither done nor answered
	silent         // the same, until the store's client gives up
)

// process is the connection of a process to a fake.
type process struct {
	*fake
	mu      sync.Mutex
	fault   func(verb, key string) fault
	delayed []func()
}

// with sets the fault of each request; nil: none has one.
func (p *process) with(f func(verb, key string) fault) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.fault = f
}

// once sets the fault of the next request with that verb.
func (p *process) once(verb string, what fault) {
	var done atomic.Bool
	p.with(func(v, _ string) fault {
		if v != verb || done.Swap(true) {
			return fine
		}
		return what
	})
}

// arrive does the requests that were delayed.
func (p *process) arrive() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.delayed {
		f()
	}
	p.delayed = nil
}

// request does f, which takes a moment.
func (p *process) request(ctx context.Context, verb, key string, f func() error) error {
	time.Sleep(50 * time.Microsecond)
	if ctx.Err() != nil {
		return ctx.Err() // before it was sent
	}
	p.mu.Lock()
	decide := p.fault
	p.mu.Unlock()
	what := fine
	if decide != nil {
		what = decide(verb, key)
	}
	if what == late {
		p.mu.Lock()
		p.delayed = append(p.delayed, func() { _ = p.do(verb, f) })
		p.mu.Unlock()
	}
	if what == never {
		<-ctx.Done()
		return ctx.Err()
	}
	if what == silent {
		time.Sleep(silence)
		return errSilent
	}
	if what == late || what == notDone {
		return errNotDone
	}
	err := p.do(verb, f)
	time.Sleep(50 * time.Microsecond)
	if what == slow || what == slowLoss {
		time.Sleep(50 * time.Millisecond)
	}
	if what == stands {
		time.Sleep(7500 * time.Millisecond)
	}
	if what == noAnswer || what == slowLoss {
		return errNoAnswer
	}
	return errors.Join(err, ctx.Err())
}

func (p *process) do(verb string, f func() error) error {
	p.fake.mu.Lock()
	defer p.fake.mu.Unlock()
	p.calls[verb]++
	return f()
}

func (s *fake) find(key string) Document {
	d := s.docs[key]
	if time.Now().After(d.until) {
		return Document{}
	}
	return d.Document
}

func (s *fake) write(key string, value []byte, keep time.Duration) Version {
	s.number++
	s.docs[key] = fakeDocument{Document{Value: value, Version: Version{1, s.number}}, time.Now().Add(keep)}
	if s.changed != nil {
		close(s.changed)
		s.changed = make(chan struct{})
	}
	return Version{1, s.number}
}

func (p *process) Get(ctx context.Context, keys ...string) (docs []Document, err error) {
	err = p.request(ctx, "get", keys[0], func() error {
		docs = nil
		for _, key := range keys {
			if strings.Contains(key, ":h:") {
				p.calls["heartbeat"]++
			}
			docs = append(docs, p.find(key))
		}
		return nil
	})
	return docs, err
}

func (p *process) Put(ctx context.Context, key string, value []byte, read Version, keep time.Duration) (v Version, err error) {
	if len(value) > p.most {
		return v, ErrTooLarge // without a request, as stores do
	}
	err = p.request(ctx, "put", key, func() error {
		if p.find(key).Version != read {
			if p.mute {
				return ErrChanged
			}
			return &Changed{p.find(key)}
		}
		v = p.write(key, value, keep)
		return nil
	})
	return v, err
}

func (p *process) Set(ctx context.Context, key string, value []byte, keep time.Duration) error {
	return p.request(ctx, "set", key, func() error {
		p.write(key, value, keep)
		return nil
	})
}

// setClock has another server's clock take over.
func (s *fake) setClock(name string, ahead time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.clock, s.ahead = name, ahead
}

func (p *process) Time(ctx context.Context) (now Time, err error) {
	err = p.request(ctx, "time", "", func() error {
		if p.clock == "" {
			return errNotDone
		}
		at := (time.Duration(time.Now().UnixNano()) + p.ahead).Truncate(max(p.coarse, 1))
		now = Time{p.clock, at, at + p.coarse}
		return nil
	})
	return now, err
}

// timeless is a fake without a clock.
func timeless(o *Options) { o.Store = struct{ Store }{o.Store} }

func (s *fake) count(verb string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.calls[verb]
}

// lose has the store forget everything whose key contains a text.
func (s *fake) lose(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.docs {
		if strings.Contains(key, text) {
			delete(s.docs, key)
		}
	}
}

// save returns a function that restores the queues as they are now, as if the store had lost its last changes.
func (s *fake) save() (restore func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	saved := make(map[string]fakeDocument)
	for key, d := range s.docs {
		if strings.Contains(key, ":q:") {
			saved[key] = d
		}
	}
	return func() {
		s.lose(":q:")
		s.mu.Lock()
		defer s.mu.Unlock()
		maps.Copy(s.docs, saved)
	}
}

// touch writes a queue as another process would, without changing its content.
func (s *fake) touch(key string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d := s.find(key); d.Version != (Version{}) {
		s.write(key, d.Value, time.Minute)
	}
}

// bed is a fake in a bubble, where time passes only while all goroutines wait.
type bed struct {
	*testing.T
	*fake
}

func bubble(t *testing.T, f func(b *bed)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) { f(&bed{t, newFake()}) })
}

// open opens a driver as a process of its own.
func (b *bed) open(opts ...func(*Options)) (*Engine, *process) {
	p := &process{fake: b.fake}
	o := Options{Store: p, Prefix: "t"}
	for _, opt := range opts {
		opt(&o)
	}
	e := New(o)
	b.Cleanup(func() {
		_ = e.Close()
		b.books(e)
	})
	return e, p
}

// books checks that what an engine knows of its tickets agrees, when nothing is under way.
func (b *bed) books(e *Engine) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for id, t := range e.tickets {
		_, waits := e.waiting[t]
		if t.id != id || t.state == ended || !slices.Contains(t.file.own, t) || e.files[t.file.key] != t.file || waits != (t.state < held) || waits && t.callers == 0 {
			b.Errorf("ticket %s, in state %d, is not kept as it should be", id, t.state)
		}
	}
	for t := range e.waiting {
		if e.tickets[t.id] != t {
			b.Errorf("ticket %s waits, and is not known", t.id)
		}
	}
	for key, f := range e.files {
		if f.key != key || f.writing || len(f.changes) > 0 || slices.ContainsFunc(f.own, func(t *ticket) bool { return e.tickets[t.id] != t || t.file != f }) {
			b.Errorf("document %s: %d changes, writing %t, tickets %v", key, len(f.changes), f.writing, f.own)
		}
	}
	if len(e.entering) > 0 {
		b.Errorf("still entering: %v", e.entering)
	}
}

func request(name, id string) driver.Request {
	return driver.Request{Name: name, ID: id, TTL: 10 * time.Second, Renewed: true}
}

// heavy is a request that makes its queue a large one, whose waiters are notified.
func heavy(name, id string) driver.Request {
	r := request(name, id)
	r.Note = strings.Repeat("x", smallQueue)
	return r
}

// take acquires what is free.
func (b *bed) take(e *Engine, r driver.Request) driver.Grant {
	b.Helper()
	g, err := e.Acquire(b.Context(), r)
	if err != nil {
		b.Fatal(err)
	}
	return g
}

// waits acquires in the background, and returns when the ticket is queued.
func (b *bed) waits(e *Engine, r driver.Request) <-chan error {
	b.Helper()
	joined, got := make(chan struct{}), make(chan error, 1)
	r.Wait, r.Joined = true, func() { close(joined) }
	go func() {
		_, err := e.Acquire(b.Context(), r)
		got <- err
	}()
	select {
	case <-joined:
	case err := <-got:
		b.Fatalf("%s: %v, want it to wait", r.ID, err)
	}
	return got
}

// waitsFor acquires with a wait, and returns the error.
func (b *bed) waitsFor(e *Engine, r driver.Request, wait time.Duration) error {
	b.Helper()
	ctx, cancel := context.WithTimeout(b.Context(), wait)
	defer cancel()
	r.Wait = true
	_, err := e.Acquire(ctx, r)
	if err != nil && !errors.Is(err, context.DeadlineExceeded) {
		b.Fatal(err)
	}
	return err
}

// text returns the document of a queue as the store has it.
func (b *bed) text(name string) string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.find("t:q:" + hash(name)).Value)
}

// queue returns the IDs of a queue as e sees it.
func (b *bed) queue(e *Engine, name string) (ids []string) {
	b.Helper()
	tickets, err := e.Inspect(b.Context(), name)
	if err != nil {
		b.Fatal(err)
	}
	for _, t := range tickets {
		ids = append(ids, t.ID)
	}
	return ids
}

// stored returns the IDs of a queue as the store has it.
func (b *bed) stored(name string) (ids []string) {
	b.Helper()
	b.mu.Lock()
	defer b.mu.Unlock()
	d, err := decode(b.find("t:q:" + hash(name)).Value)
	if err != nil {
		b.Fatal(err)
	}
	for _, r := range d.find(name).Tickets {
		ids = append(ids, r.ID)
	}
	return ids
}
