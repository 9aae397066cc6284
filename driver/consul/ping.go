package consul

import (
	"context"
	"errors"
	"time"
)

// Ping implements driver.Pinger. It renews a session, or creates one, which shows
// the right to sessions, and sends a transaction that is refused because it
// names a session that does not exist, which shows that the leader commits and
// the right to write keys.
func (d *Driver) Ping(ctx context.Context) error {
	ctx, done := d.bind(ctx)
	defer done()
	if err := d.agree(ctx, false); err != nil {
		return failure(ctx, err)
	}
	k := kind{ttl: d.opts.minTTL}
	d.mu.Lock()
	for s := range d.sessions {
		if !s.retired && !s.minHold {
			k = s.kind
		}
	}
	d.mu.Unlock()
	probe, err := d.attach(ctx, &ticket{name: "ping", id: "ping " + time.Now().String()}, k, time.Now())
	if err != nil {
		return failure(ctx, err)
	}
	d.detach(probe)
	err = d.store.do(ctx, lockOp(d.keys.line("ping")+noSession, noSession, nil))
	var refused *rollback
	if err == nil || errors.As(err, &refused) {
		return nil
	}
	return failure(ctx, err)
}

const noSession = "00000000-0000-0000-0000-000000000000"
