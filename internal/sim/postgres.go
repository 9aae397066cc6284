package sim

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
)

// database is a model of PostgreSQL, by its protocol (postgres_protocol.go), with the functions of
// driver/postgres (postgres_queue.go). So the world is that of sqlqueue, the engine of the drivers of SQL databases,
// under a driver and a pool of connections that are the real ones. A transaction that has taken the lock of a name may
// keep it for a while before it commits, and some are undone, as after a deadlock. Committed data survives; a restart, or
// the replica that replaces the server, may skip some tokens. The clock is not that of the processes, and runs at a rate of its own.
type database struct {
	s     *server
	rnd   *stream
	rate  float64 // of its clock
	ahead time.Duration
	full  string // what it answers while it is full: the code of an error

	mu     sync.Mutex
	tables pgTables
	asked  map[string]int           // how often, by the ID of the ticket
	locks  map[string]chan struct{} // of names
	links  map[int64]*pgLink        // by process ID
	pid    int64
}

func newDatabase(s *server) *database {
	d := &database{
		s: s, rnd: newStream(s.w.seed, s.name),
		tables: pgTables{tickets: make(map[string][]*pgTicket), processes: make(map[int64]*pgProcess)},
		asked:  make(map[string]int),
		locks:  make(map[string]chan struct{}), links: make(map[int64]*pgLink),
	}
	d.ahead = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Sub(s.w.begun) + d.rnd.upTo(48*time.Hour)
	d.rate = 0.9995 + 0.001*float64(d.rnd.n(1000))/1000 // the engine's estimate of it holds for ten minutes
	d.full = pick(d.rnd, codeDisk, codeReplica, codeCrowded)
	return d
}

// time is the server's clock, in µs.
func (d *database) time() int64 {
	begun := d.s.w.begun
	return begun.Add(d.ahead + time.Duration(float64(time.Since(begun))*d.rate)).UnixMicro()
}

// restart loses the connections and up to 32 tokens, of which the log says that they were used.
func (d *database) restart() (loses bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.tables.token += int64(d.rnd.n(33))
	clear(d.links)
	return false
}

func (d *database) has(name string, token uint64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return slices.ContainsFunc(d.tables.tickets[name], func(t *pgTicket) bool {
		return uint64(t.token) == token && t.held && t.expires > d.time() //nolint:gosec // tokens are positive
	})
}

func (d *database) leftovers() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	if left := d.tables.String(); left != "" {
		return []string{left}
	}
	return nil
}

// lockOf returns the lock of a name.
func (d *database) lockOf(name string) chan struct{} {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.locks[name] == nil {
		d.locks[name] = make(chan struct{}, 1)
	}
	return d.locks[name]
}

// run runs a statement, which is a transaction. It waits for the lock of a name until canceled is closed.
func (d *database) run(op string, args []any, canceled <-chan struct{}) (rows [][]any, err *pgError) {
	_, _, full := d.s.state()
	if full.After(time.Now()) && pgOps[op].writes && d.full != codeCrowded {
		return nil, &pgError{d.full, "refused"}
	}
	if !pgOps[op].locks {
		rows, notices := d.call(op, args)
		d.tell(notices)
		return rows, nil
	}
	lock := d.lockOf(args[0].(string))
	select {
	case lock <- struct{}{}:
	case <-canceled:
		return nil, &pgError{codeCanceled, "canceling statement due to user request"}
	}
	defer func() { <-lock }()
	if d.draw(60) {
		return nil, &pgError{codeDeadlock, "deadlock detected"}
	}
	rows, notices := d.call(op, args)
	if op == "acquire" {
		d.askedAgain(args[0].(string), args[1].(string))
	}
	if d.draw(30) { // it commits late
		d.s.w.sleep(d.short())
	}
	d.tell(notices)
	return rows, nil
}

func (d *database) draw(n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.one(n)
}

func (d *database) short() time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rnd.upTo(30 * time.Millisecond)
}

// call executes a statement.
func (d *database) call(op string, args []any) ([][]any, []pgNotice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	c := &pgCall{pgTables: &d.tables, now: d.time()}
	rows := c.do(op, args)
	d.s.w.comesBack(d.s, texts(args), func(name, id string, _ time.Time) bool {
		t := c.byID(name, id)
		return t != nil && c.live(t) // else it is the row of a process that has expired, which nobody has removed yet
	})
	d.s.w.message("%s: %s %v: %v %v", d.s.name, op, args, rows, c.notices)
	return rows, c.notices
}

// askedAgain checks that a ticket is not asked for again and again: what a driver does about an answer helps, or it gives up. A
// loop would cost the messages of the run before its call has reached its limit.
func (d *database) askedAgain(name, id string) {
	const most = 20
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.asked[id]++; d.asked[id] == most {
		d.s.w.fail("%s was asked %d times for the ticket %s for %s", d.s.name, most, d.s.w.ticket(id), name)
	}
}

// texts returns the arguments that may be IDs of tickets.
func texts(args []any) (all []string) {
	for _, a := range args {
		if s, ok := a.(string); ok {
			all = append(all, s)
		}
	}
	return all
}

// tell passes notices on to the connections that listen.
func (d *database) tell(notices []pgNotice) {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.links, func(_ int64, l *pgLink) bool { return l.c.failed() })
	for _, n := range notices {
		channel := fmt.Sprintf("locker_%x", n.process>>16)
		for _, pid := range slices.Sorted(maps.Keys(d.links)) {
			if l := d.links[pid]; l.channels[channel] {
				l.c.push(pgNotification(pid, channel, n.text), 0)
			}
		}
	}
}

// pgConfig is how all processes reach the database.
var pgConfig = sync.OnceValue(func() *pgxpool.Config {
	c, err := pgxpool.ParseConfig("postgres://locker@postgres/locker?sslmode=disable&connect_timeout=5")
	if err != nil {
		panic(err)
	}
	c.ConnConfig.LookupFunc = func(_ context.Context, host string) ([]string, error) { return []string{host}, nil }
	return c
})

// postgresDriver is deeper in ownedPool than what checks its answers.
type postgresDriver struct{ *postgres.Driver }

// ownedPool closes its pool, as a driver does that is opened by URL.
type ownedPool struct {
	*contract
	postgresDriver
	pool *pgxpool.Pool
}

func (d ownedPool) Close() error {
	err := d.contract.Close()
	go d.pool.Close()
	return err
}

func openDatabase(s *server, process string) (driver.Driver, *path, error) {
	d, p := s.model.(*database), newPath(s, process)
	c := pgConfig().Copy()
	c.MaxConns = pick(newStream(s.w.seed, "pool "+process), int32(2), 3, 10)
	c.ConnConfig.DialFunc = func(ctx context.Context, _, _ string) (net.Conn, error) { return d.dial(ctx, p) }
	pool, err := pgxpool.NewWithConfig(context.Background(), c)
	if err != nil {
		return nil, nil, err
	}
	var opts []postgres.Option
	if s.w.unheard { // nothing but heartbeats and polls tells of grants
		opts = append(opts, postgres.WithoutListen())
	}
	driver, err := postgres.New(pool, opts...)
	return ownedPool{&contract{w: s.w, m: d, d: driver, process: process}, postgresDriver{driver}, pool}, p, err
}
