package mysql

import (
	"context"
	"database/sql"
	"slices"
	"sync"
	"time"

	"github.com/lockerproject/locker/driver"
)

// Whoever takes one name again and again leaves the row of its gate where it is: to
// change a row costs less than to insert and delete one, and if nobody else has had
// it meanwhile little has to be changed. Names that are used once leave nothing. The
// process that kept a row removes it when it has not used it for a while, and when the
// driver is closed; the sweep finds those of processes that died.
const (
	keptMost = 1024             // names that a process remembers
	keptLife = 10 * time.Second // since it has used them

	turnsSpare = 8 // of a row are not used: to keep, to burn and to enter it takes four at most
)

// A use is what a process knows of a name that it has used of late.
type use struct {
	id          string // of the last ticket that it was granted at the gate
	owner, note string // in the row
	often       bool   // it was used before, by this process or by others
	crowded     bool   // others were in line; then there is a gate to queue behind, most likely
	kept        uint64 // the number that the row was left with; 0: none is kept
	at          time.Time
}

// keeper remembers the names that a process uses.
type keeper struct {
	mu    sync.Mutex
	names map[string]*use
}

// take returns the number that the row was left with that this process kept, for a
// ticket that can take it. It does so once.
func (k *keeper) take(r driver.Request) (left uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.names[r.Name]
	if u == nil || r.Shared || u.owner != r.Owner || u.note != r.Note {
		return 0
	}
	left, u.kept = u.kept, 0
	return left
}

// granted takes down that a ticket was granted at the gate.
func (k *keeper) granted(r driver.Request, token uint64) {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.use(r.Name)
	u.often = u.often || u.id != "" || turnOf(token) > 0
	u.id, u.owner, u.note, u.kept, u.crowded = r.ID, r.Owner, r.Note, 0, false
}

// use is what is known of a name, or is to be remembered. With mu held.
func (k *keeper) use(name string) *use {
	u := k.names[name]
	if u == nil {
		u = new(use)
		if len(k.names) < keptMost {
			k.names[name] = u
		}
	}
	u.at = time.Now()
	return u
}

// keeps tells whether the row of a ticket is to be kept when it is released. Not when
// its turns are nearly used up: no number may grow into those of the next seq. Nor when the row is from before
// the epoch: numbers that followed it may be lost.
func (k *keeper) keeps(h driver.Hold, floor uint64) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.names[h.Name]
	return u != nil && seqOf(h.Token) > floor && u.id == h.ID && u.often && !h.Shared && turnOf(h.Token) < turns-turnsSpare
}

// kept takes down that a row was.
func (k *keeper) kept(h driver.Hold) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if u := k.names[h.Name]; u != nil && u.id == h.ID {
		u.kept, u.at = h.Token+1, time.Now()
	}
}

// crowd takes down whether there are others in the line of a name.
func (k *keeper) crowd(name string, crowded bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if crowded || k.names[name] != nil {
		k.use(name).crowded = crowded
	}
}

func (k *keeper) crowded(name string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	u := k.names[name]
	return u != nil && u.crowded
}

// forget forgets names that were not used for so long, and returns those of which a
// row was kept, and whether any is left.
func (k *keeper) forget(unused time.Duration) (kept []string, more bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for name, u := range k.names {
		switch {
		case time.Since(u.at) < unused:
			more = more || u.kept > 0
		default:
			if u.kept > 0 {
				kept = append(kept, name)
			}
			delete(k.names, name)
		}
	}
	return kept, more
}

// forget removes rows that are kept, and that nobody has used for so long.
func (d *Driver) forget(ctx context.Context, names []string, unused time.Duration) error {
	slices.Sort(names) // so that no two of these wait for each other
	for some := range slices.Chunk(names, batch) {
		if _, err := d.exec(ctx, "forget", values{names: some, unused: unused}); err != nil {
			return err
		}
	}
	return nil
}

// takeAgain takes a ticket in the row that this process kept, if there is one. A
// ticket without a number means that there is not, or not as it was left.
//
// The row is taken if its turn is still that, which only grows, and with every
// change of whose the row is: who has joined the line meanwhile has taken it. So the
// statement may be given up, with its caller. To ask again for the same ticket finds it
// taken, or takes it by enter, after which this statement does nothing. To release
// it burns the turn.
func (d *Driver) takeAgain(ctx context.Context, r driver.Request) (ticket, error) {
	left := d.keeper.take(r)
	if left == 0 {
		return ticket{}, nil
	}
	bounded, cancel := context.WithTimeout(ctx, takeBound)
	defer cancel()
	defer context.AfterFunc(d.ctx, cancel)()
	v, err := d.valuesOf(bounded, r)
	if err != nil {
		return ticket{}, err
	}
	v.token = left
	asked := time.Now()
	var res sql.Result
	query := d.w.render("again", v)
	sent := false
	err = d.with(bounded, func(c *sql.Conn) (err error) {
		res, err = c.ExecContext(bounded, query)
		sent = sent || unanswered(err)
		return err
	})
	switch {
	case err != nil && !sent && number(err) == 0:
		return ticket{}, err // there is no connection
	case number(err) != 0 && !broken(err):
		return ticket{}, nil // it was not done; what is wrong is for enter to find
	case err != nil:
		d.mu.Lock()
		u := d.unknown[r.ID]
		u.kept = left
		d.unknown[r.ID] = u
		d.mu.Unlock()
		if bounded.Err() == nil {
			err = nil // the connection broke
		}
		return ticket{}, err
	}
	n, err := res.RowsAffected()
	if err != nil || n == 0 {
		return ticket{}, err
	}
	t := ticket{token: left + 1, asked: asked, granted: true}
	d.keeper.granted(r, t.token)
	return t, nil
}

// burn sees to it that no ticket is taken any more by a takeAgain that was not answered.
func (d *Driver) burn(ctx context.Context, h driver.Hold, u unknown) error {
	if u.kept == 0 {
		return nil
	}
	_, err := d.exec(ctx, "burn", values{name: h.Name, token: u.kept})
	return err
}
