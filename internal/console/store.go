package console

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/queues"
)

const (
	pollOn      = 15 * time.Second // polling goes on after the last browser left
	idleFactor  = 4                // a poll that took d is followed by 4 d of rest at least
	maxInterval = time.Minute
	firstRetry  = 500 * time.Millisecond // after a failed poll, doubled up to maxRetry
	maxRetry    = 4 * time.Second
)

// store polls one Source while somebody looks, and keeps what it saw.
type store struct {
	Store
	every time.Duration

	poke chan struct{} // poll now

	mu       sync.Mutex
	viewers  map[chan<- struct{}]bool // get each new snapshot
	left     time.Time                // when the last viewer left
	records  map[string]*record
	snapshot *snapshot
	polled   time.Time // the last poll that succeeded
	polls    sightings // when that was
	failures int
}

func newStore(s Store, every time.Duration) *store {
	return &store{
		Store: s, every: every, poke: make(chan struct{}, 1),
		viewers: make(map[chan<- struct{}]bool), records: make(map[string]*record),
		snapshot: &snapshot{Status: status{State: connecting}},
	}
}

// watch has the store send c each new snapshot, without waiting for it, until
// the function it returns is called.
func (s *store) watch(c chan<- struct{}) (stop func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.viewers) == 0 {
		s.wake()
		if time.Since(s.left) > pollOn { // what there is is old
			old := *s.snapshot
			old.Status.State = connecting
			s.snapshot = &old
		}
	}
	s.viewers[c] = true
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.viewers, c)
		s.left = time.Now()
	}
}

// wake has the poller poll now.
func (s *store) wake() {
	select {
	case s.poke <- struct{}{}:
	default:
	}
}

// watched reports whether somebody watches, or did a moment ago.
func (s *store) watched() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.viewers) > 0 || time.Since(s.left) < pollOn
}

// run polls until ctx ends.
func (s *store) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	<-timer.C
	for {
		var rest <-chan time.Time
		if s.watched() {
			select {
			case <-s.poke: // this poll is the answer
			default:
			}
			timer.Reset(s.poll(ctx))
			rest = timer.C
		}
		select { // with nobody looking only a new viewer wakes it
		case <-ctx.Done():
			return
		case <-s.poke:
		case <-rest:
		}
		timer.Stop()
	}
}

// poll asks the store once and publishes the answer. It returns how long to rest.
func (s *store) poll(ctx context.Context) time.Duration {
	began := time.Now()
	seen, err := queues.Read(ctx, s.Source, "")
	took := time.Since(began)
	version := s.version(ctx, err)

	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil {
		return 0
	}
	var rest time.Duration
	next := &snapshot{Status: s.snapshot.Status, queues: s.snapshot.queues}
	if err != nil {
		s.failures++
		rest = min(firstRetry<<min(s.failures-1, 10), maxRetry)
		next.Status.fail(err, began)
		if next.Status.State == unsupported { // that does not pass
			rest = maxInterval
		}
	} else {
		s.failures = 0
		rest = min(max(s.every, idleFactor*took), maxInterval)
		next.queues = s.absorb(seen, began)
		next.Status = status{State: up, At: began.UnixMilli(), Version: version}
	}
	next.Status.Took, next.Status.Rest = took.Milliseconds(), rest.Milliseconds()
	s.snapshot = next
	for c := range s.viewers {
		select {
		case c <- struct{}{}:
		default:
		}
	}
	return rest
}

// version asks for the server's version, if the poll has found the store up after it was not:
// a server may be replaced while it is away. Else it is what it was.
func (s *store) version(ctx context.Context, polled error) string {
	s.mu.Lock()
	old := s.snapshot.Status
	s.mu.Unlock()
	if polled != nil || old.State == up {
		return old.Version
	}
	version, _ := s.Source.ServerVersion(ctx) // it may need a right that locks do not
	return version
}

// The states of a store.
const (
	connecting  = "connecting"  // not polled yet
	up          = "up"          // the last poll succeeded
	down        = "down"        // it failed
	unsupported = "unsupported" // the store cannot list
)

// status is how the last poll went. Times are in milliseconds, since 1970 where
// they are moments.
type status struct {
	State string `json:"state"`
	Error string `json:"error,omitempty"`
	Since int64  `json:"since,omitempty"` // down: of the first poll that failed
	At    int64  `json:"at,omitempty"`    // of the last poll that succeeded
	Took  int64  `json:"took"`
	Rest  int64  `json:"rest"` // until the next poll

	Version string `json:"version,omitempty"` // of the server, where it tells
}

func (s *status) fail(err error, at time.Time) {
	if s.State != down && s.State != unsupported {
		s.Since = at.UnixMilli()
	}
	s.State, s.Error = down, err.Error()
	if errors.Is(err, locker.ErrUnsupported) {
		s.State = unsupported
	}
}
