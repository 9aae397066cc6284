package compose

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

// outage is what Fallback knows of an outage of one of its stores. A request without an answer
// starts a probe: one Ping, and if that has no answer either, more of them with a back-off,
// until the store answers one, or says that a ticket is lost. Meanwhile the store is away: no
// acquisition asks a primary that is.
//
// The request alone does not make the store away. It may be one that hangs for a reason
// of its own, such as a row that somebody has locked, and with a limit that is too short for
// any answer. Then the requests for other names must not degrade, since a degraded grant may
// be a second one.
type outage struct {
	store driver.Driver
	bound time.Duration // for the answer to one Ping
	tasks *background

	mu      sync.Mutex
	probing bool
	away    error // why; nil: as far as is known, the store answers
	losses  int   // that the store has told: a Ping without an answer says nothing if one came meanwhile
}

// lost ends the outage: the store has forgotten a waiter while it was away, and has just said so. The waiter's next request,
// which follows at once, must not go to the other store. A grant says less: a store of several servers may
// grant some names while it is away for others.
func (o *outage) lost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.losses++
	o.away = nil
}

// cause returns why the store is away, or nil.
func (o *outage) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.away
}

// startProbe starts a probe, unless one is under way.
func (o *outage) startProbe() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.probing {
		o.probing = o.tasks.run(o.probe)
	}
}

// probe is the goroutine. It ends with the first answer.
func (o *outage) probe() {
	pause := retry.Backoff{First: 100 * time.Millisecond, Most: time.Second}
	for {
		o.mu.Lock()
		losses := o.losses
		o.mu.Unlock()
		away := o.ping()
		o.mu.Lock()
		if o.losses != losses {
			away = nil
		}
		o.away, o.probing = away, away != nil
		o.mu.Unlock()
		if away == nil || !retry.Sleep(o.tasks.ctx, pause.Next(), nil) {
			return
		}
	}
}

// ping returns nil if the store answers, even if it refuses: then Fallback returns what
// it says.
func (o *outage) ping() error {
	ctx, cancel := context.WithTimeout(o.tasks.ctx, o.bound)
	defer cancel()
	if err := ping(ctx, o.store); driver.IsUnavailable(err) {
		return driver.Unavailable(fmt.Errorf("ping: %w", err))
	}
	return nil
}
