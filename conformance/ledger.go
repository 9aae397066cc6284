package conformance

import (
	"fmt"
	"sync"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// ledger records who believed that they held a name, and when. A holder's interval
// begins after its grant and ends before its release, or when its own clock says
// that the lock is lost. So two intervals that overlap and must not are two holders.
type ledger struct {
	mu      sync.Mutex
	now     int64 // a clock that ticks at every entry
	entries []*entry
}

type entry struct {
	lock     *locker.Lock
	token    uint64
	kind     kind
	from, to int64 // to is 0 while held
}

// granted records a grant. A holder whose validity has ended holds no longer,
// whether or not it has noticed.
func (l *ledger) granted(k *locker.Lock, kd kind) *entry {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.now++
	for _, other := range l.entries {
		if other.to == 0 && other.lock.Err() != nil {
			other.to = l.now
		}
	}
	l.now++
	en := &entry{lock: k, token: k.Token(), kind: kd, from: l.now}
	l.entries = append(l.entries, en)
	return en
}

// ends records that a holder is about to release.
func (l *ledger) ends(en *entry) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if en.to == 0 {
		l.now++
		en.to = l.now
	}
}

// check checks every grant against driver.Grantable: a ticket that is ahead (its
// token is smaller) and ends after this ticket's grant was in the queue, held or
// waiting, when this ticket was granted.
func (l *ledger) check() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	seen := make(map[uint64]bool)
	for _, x := range l.entries {
		if x.token == 0 || seen[x.token] {
			return fmt.Errorf("token %d was given to two grants, or is zero (D3)", x.token)
		}
		seen[x.token] = true
	}
	for _, x := range l.entries {
		var ahead []*entry
		var queue []driver.Ticket
		for _, y := range l.entries {
			if y.token < x.token && (y.to == 0 || y.to >= x.from) {
				ahead = append(ahead, y)
				queue = append(queue, y.kind.ticket())
			}
		}
		if !driver.Grantable(append(queue, x.kind.ticket()), len(queue)) {
			return fmt.Errorf("%s was granted while these were ahead of it: %v", x, ahead)
		}
	}
	return nil
}

func (en *entry) String() string {
	return fmt.Sprintf("%s ticket %d [held %d–%d]", en.kind, en.token, en.from, en.to)
}
