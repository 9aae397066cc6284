package mysql

import (
	"context"
	"database/sql"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
)

// Sweep sweeps once.
func (d *Driver) Sweep(ctx context.Context) error {
	_, err := sqlqueue.Sweep(ctx, d.e)
	return err
}

// SweepInTurn sweeps, unless another process does or has done so. It returns when a sweep is due again.
func (d *Driver) SweepInTurn(context.Context) time.Duration { return sqlqueue.SweepInTurn(d.e) }

// SweepEvery changes the interval of a driver that was not used yet.
func (d *Driver) SweepEvery(every time.Duration) { d.build(sqlqueue.Options{SweepEvery: every}) }

// SlotOf is the slot of a name.
func SlotOf(name string) uint64 { return slotOf(name) }

// SlotColumn is the column of the table of slots.
var SlotColumn = column(current)

// An Edition is a version of the schema other than this package's.
type Edition = sqlqueue.Edition

// NewEdition is an edition of a version, with the hash of a text.
func NewEdition(version, hash string) Edition { return Edition{Version: version, Hash: hash} }

// Current is the edition of this package.
var Current = current

// Become changes the edition of a driver that was not used yet.
func (d *Driver) Become(e Edition) {
	d.s.w, _ = newWire(e, d.s.opts.prefix) // which was checked
	d.build(sqlqueue.Options{})
}

// Procedures are the names of all.
var Procedures = procedures

// StatementsText is what programs do with the tables.
var StatementsText = statementsText

// Config is how the client of a URL's driver is configured.
func Config(raw string) (*mysql.Config, error) {
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, err
	}
	u.Int("pool_size", defaultPool, 1) // clientConfig leaves it to openURL
	return clientConfig(u)
}

// Take asks for a ticket, as the engine does.
func (d *Driver) Take(ctx context.Context, r driver.Request, until func() int64) (sqlqueue.Answer, error) {
	return d.s.Take(ctx, 1<<16, r, until)
}

// UseConn calls f with a connection, as a request does.
func (d *Driver) UseConn(ctx context.Context, f func()) error {
	return d.s.conns.Use(ctx, func(*sql.Conn) error { f(); return nil })
}

// TxSweep is the statement that sweeps the rows of AcquireTx, for a transaction.
func (d *Driver) TxSweep() string {
	return strings.ReplaceAll(d.s.w.render("tx_sweep", values{"most": batch}), autocommitOn, "1")
}

// Store is what the engine works on.
func (d *Driver) Store() sqlqueue.Store { return d.s }

// Waits has requests made as if this process waited for something.
func (d *Driver) Waits() { d.s.listening.Store(&listening{connection: 1}) }

// Hears reports whether notices arrive.
func (d *Driver) Hears() bool { return sqlqueue.Receiving(d.e) }
