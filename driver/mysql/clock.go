package mysql

import (
	"context"
	"database/sql"
	"math/rand/v2"
	"strconv"
	"time"
)

// A statement that inserts a ticket contains a deadline on the database's clock: if the network or a lock in the database
// delays it for longer, it does nothing. Nothing else depends on this reading of the clock.
//
// It also contains the start of the server that it is meant for. A server that has lost commits, in a crash or as a
// replica that takes over, would give the tokens in them again. So for each start of a server the first driver raises
// AUTO_INCREMENT to the server's clock, in 256ths of a millisecond. Tokens grow as long as the servers' clocks agree and
// fewer than 256,000 numbers a second are used on average. A try that is refused uses one too, and with
// auto_increment_increment each is so many.

const (
	// arriveBound is how long a statement that inserts a ticket may be on its way.
	arriveBound = 2 * time.Second
	// readingAge bounds how far the two clocks drift apart.
	readingAge = 10 * time.Minute
)

// A server is what a driver knows of its server.
type server struct {
	clock  time.Time // what its clock said
	read   time.Time // when the answer came
	start  uint64    // identifies the server and its start
	raised uint64    // the start that tokens were last raised for
}

// now estimates the server's clock. It is behind rather than ahead, so that deadlines are too early rather than too late.
func (s server) now() time.Time { return s.at(time.Now()) }

// at is what the server's clock shows at a time of this process.
func (s server) at(t time.Time) time.Time { return s.clock.Add(t.Sub(s.read)) }

// server returns what is known of the server, and asks the server if nothing is. If this process comes back to a
// server from another one, that server may lack the tokens that the other has given since: tokens are raised again.
func (d *Driver) server(ctx context.Context) (server, error) {
	if s := d.known.Load(); s != nil && time.Since(s.read) < readingAge {
		return *s, nil
	}
	for try := 0; ; try++ {
		s, err := d.readServer(ctx)
		if before := d.before.Load(); err == nil && (s.raised != s.start || before != 0 && before != s.start) {
			err = d.raiseTokens(ctx, s)
		}
		if err == nil {
			d.before.Store(s.start)
			d.known.Store(&s)
		}
		if code(err) != errNull || try == 2 { // else the server has changed in between
			return s, err
		}
	}
}

func (d *Driver) readServer(ctx context.Context) (server, error) {
	found, err := query(ctx, d, d.w.render("clock", values{}), func(rows *sql.Rows) (s server, err error) {
		var micros int64
		err = rows.Scan(&micros, &s.start, &s.raised)
		s.clock, s.read = time.UnixMicro(micros), time.Now()
		return s, err
	})
	if err != nil {
		return server{}, err
	}
	return found[0], nil
}

// raiseTokens moves AUTO_INCREMENT to the clock of the server. Others may do so at the same time.
func (d *Driver) raiseTokens(ctx context.Context, s server) error {
	v := values{id: strconv.FormatUint(rand.Uint64(), 36), start: s.start}
	_, err := d.exec(ctx, "raise", v)
	if err == nil {
		_, err = d.exec(ctx, "raise_clear", v)
	}
	if err == nil || code(err) == errDuplicate { // AUTO_INCREMENT is beyond the clock
		_, err = d.exec(ctx, "raised", v)
	}
	return err
}

// renewServer removes what prevents all insertions: a clock that was set, a server that was restarted or took over, or
// slots that are missing.
func (d *Driver) renewServer(ctx context.Context, try int) error {
	d.known.Store(nil)
	if try == 0 {
		return nil
	}
	return d.fillSlots(ctx)
}
