package mysql_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/testbed"
)

// A pair is a primary and a replica that lags as far as the test wants. Its pools connect to the one in service, as
// a user who may not write to a read-only server.
type pair struct {
	primary, replica *testbed.Server
	onPrimary        *sql.DB // as root
	onReplica        *sql.DB
	address          atomic.Pointer[string]
	config           *gomysql.Config
}

var pairs atomic.Int64

func newPair(t *testing.T) *pair {
	t.Helper()
	p := &pair{
		primary: testbed.MariaDB(t, testbed.Args("--server-id=11", "--log-bin=bin")),
		replica: testbed.MariaDB(t, testbed.Args("--server-id=12", "--log-bin=bin", "--relay-log=relay")),
	}
	p.onPrimary, p.onReplica = connect(t, p.primary, "?multiStatements=true"), connect(t, p.replica, "?multiStatements=true")
	do(t, p.onReplica, "CHANGE MASTER TO "+asMaster(t, p.primary)+"; START SLAVE")
	t.Cleanup(func() { _, _ = p.onReplica.Exec("STOP SLAVE") })
	do(t, p.onPrimary, "CREATE USER app@'%' IDENTIFIED BY 'app'; GRANT SELECT, INSERT, UPDATE, DELETE, CREATE, CREATE ROUTINE, EXECUTE ON locker.* TO app@'%'")
	network := fmt.Sprint("pair", pairs.Add(1))
	gomysql.RegisterDialContext(network, func(ctx context.Context, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, "tcp", *p.address.Load())
	})
	t.Cleanup(func() { gomysql.DeregisterDialContext(network) })
	p.serve(p.primary)
	p.config = gomysql.NewConfig()
	p.config.Net, p.config.Addr, p.config.DBName, p.config.User, p.config.Passwd = network, "service", "locker", "app", "app"
	return p
}

// asMaster tells a replica where its primary is.
func asMaster(t *testing.T, primary *testbed.Server) string {
	t.Helper()
	c := configOf(t, primary.URL())
	host, port, err := net.SplitHostPort(c.Addr)
	must(t, err)
	return fmt.Sprintf("MASTER_HOST='%s', MASTER_PORT=%s, MASTER_USER='%s', MASTER_PASSWORD='%s', MASTER_CONNECT_RETRY=1", host, port, c.User, c.Passwd)
}

func (p *pair) serve(s *testbed.Server) {
	a := s.Addr()
	p.address.Store(&a)
}

func (p *pair) pool(t *testing.T) *sql.DB {
	t.Helper()
	c, err := gomysql.NewConnector(p.config)
	must(t, err)
	db := sql.OpenDB(c)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

// caughtUp waits until the replica has all that the primary has.
func (p *pair) caughtUp(t *testing.T) {
	t.Helper()
	caughtUp(t, p.onPrimary, p.onReplica)
}

func caughtUp(t *testing.T, primary, replica *sql.DB) {
	t.Helper()
	file, at := position(t, primary)
	var n sql.NullInt64
	must(t, replica.QueryRowContext(t.Context(), "SELECT MASTER_POS_WAIT(?, ?, 20)", file, at).Scan(&n))
	if !n.Valid || n.Int64 < 0 {
		t.Fatalf("the replica does not catch up: %+v", n)
	}
}

// position is where a server's log ends.
func position(t *testing.T, db *sql.DB) (file string, at int64) {
	t.Helper()
	var ignored1, ignored2 any
	must(t, db.QueryRowContext(t.Context(), "SHOW MASTER STATUS").Scan(&file, &at, &ignored1, &ignored2))
	return file, at
}

func do(t *testing.T, db *sql.DB, statement string) {
	t.Helper()
	_, err := db.ExecContext(t.Context(), statement)
	must(t, err)
}

// When a primary is demoted, and its connections stay, requests go to the next one: nobody hangs,
// and no waiter loses its ticket.
func TestDemotedPrimary(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	holder, _, prefix := fresh(t, p.pool(t))
	waiter, _ := join(t, p.pool(t), prefix)
	k := take(t, holder, "a", locker.WithTTL(6*time.Second)) // enough for the replica to catch up on a busy machine
	granted := make(chan *locker.Lock, 1)
	var group sync.WaitGroup
	defer group.Wait()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	group.Go(func() {
		k, err := waiter.Acquire(ctx, "a")
		if err != nil {
			t.Error(err)
		}
		granted <- k
	})
	time.Sleep(time.Second)
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	p.serve(p.replica)
	time.Sleep(10500 * time.Millisecond) // longer than the lease and the liveness; all tickets are compared every ten seconds
	must(t, k.Err())
	var next *locker.Lock
	took := testbed.Elapsed(func() {
		must(t, k.Release(t.Context()))
		next = <-granted
	})
	if took > 2*time.Second {
		t.Errorf("granted after %v: nobody was woken on the next primary", took)
	}
	if next != nil {
		if next.Token() <= k.Token() {
			t.Errorf("token %d after %d", next.Token(), k.Token())
		}
		must(t, next.Release(t.Context()))
	}
}

// readWatch calls a function once, when the first answer after a statement arrives.
type readWatch struct {
	net.Conn
	statement string
	then      *atomic.Pointer[func()]
	sent      atomic.Bool
}

func (c *readWatch) Write(b []byte) (int, error) {
	if strings.Contains(string(b), c.statement) {
		c.sent.Store(true)
	}
	return c.Conn.Write(b)
}

func (c *readWatch) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if c.sent.Load() {
		if f := c.then.Swap(nil); f != nil {
			(*f)()
		}
	}
	return n, err
}

// A connection to a demoted primary, which somebody has used since before that, comes back to the pool. What is read there does not
// count: a ticket that was queued on the next primary is not lost, and one that was removed there is not renewed.
func TestReadsOfADemotedPrimary(t *testing.T) {
	t.Parallel()
	const process = 5<<16 + 1
	p := newPair(t)
	db := p.pool(t)
	db.SetMaxIdleConns(1) // the one that comes back
	_, d, prefix := fresh(t, db)
	must(t, d.Ping(t.Context()))
	take := func(r driver.Request, want sqlqueue.Result) driver.Hold {
		t.Helper()
		for range 5 {
			a, err := d.Store().Take(t.Context(), process, r, func() int64 { return time.Now().Add(time.Hour).UnixMicro() })
			must(t, err)
			if a.Result == want {
				return r.Hold(a.Token)
			}
		}
		t.Fatalf("no ticket %s", r.ID)
		return driver.Hold{}
	}
	lost := take(driver.Request{Name: "a", ID: "lost", TTL: time.Hour}, sqlqueue.Granted)
	take(driver.Request{Name: "b", ID: "held", TTL: time.Hour}, sqlqueue.Granted)
	var old [3]*sql.Conn
	for i := range old {
		var err error
		old[i], err = db.Conn(t.Context())
		must(t, err)
	}
	p.caughtUp(t)
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	do(t, p.onReplica, "STOP SLAVE")
	p.serve(p.replica)
	_, err := d.Store().Heartbeat(t.Context(), process, time.Hour, true)
	must(t, err)
	take(driver.Request{Name: "b", ID: "waits", TTL: time.Hour, Wait: true}, sqlqueue.Queued)
	discardIdle(db)
	must(t, old[0].Close())
	m, err := d.Store().Mine(t.Context(), process, true)
	must(t, err)
	if len(m.Tickets) != 1 {
		t.Errorf("the process has %+v, want the ticket that waits", m.Tickets)
	}

	do(t, p.onReplica, fmt.Sprintf("DELETE FROM `%s_tickets` WHERE id = 'lost'", prefix))
	comesBack := func(i int) *atomic.Pointer[func()] {
		var then atomic.Pointer[func()]
		f := func() { must(t, old[i].Close()) }
		then.Store(&f)
		return &then
	}
	for i, what := range map[int]string{1: "renewed", 2: "shortened"} {
		then := comesBack(i)
		gomysql.RegisterDialContext(p.config.Net, func(ctx context.Context, _ string) (net.Conn, error) {
			var n net.Dialer
			c, err := n.DialContext(ctx, "tcp", p.replica.Addr())
			return &readWatch{Conn: c, statement: "UPDATE `" + prefix + "_tickets` FORCE INDEX", then: then}, err
		})
		discardIdle(db)
		var held bool
		var err error
		if i == 2 {
			held, err = d.Store().Shorten(t.Context(), lost, time.Minute)
		} else {
			var renewed []int
			renewed, err = d.Store().Renew(t.Context(), []driver.Renewal{{Hold: lost, TTL: time.Hour}})
			held = len(renewed) > 0
		}
		must(t, err)
		if held {
			t.Errorf("a ticket that was removed is %s", what)
		}
		if then.Load() != nil {
			t.Error("no connection came back")
		}
	}
}

// discardIdle closes the connections that nobody uses.
func discardIdle(db *sql.DB) {
	db.SetMaxIdleConns(-1)
	db.SetMaxIdleConns(1)
}

// A read-only server refuses everybody.
func TestReadOnlyServerIsUnavailable(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	_, d, _ := fresh(t, p.pool(t))
	r := driver.Request{Name: "a", ID: "ro-1", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	must(t, err)
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	for what, err := range map[string]error{
		"acquire": func() error {
			_, err := d.Acquire(t.Context(), driver.Request{Name: "b", ID: "ro-2", TTL: time.Minute})
			if !errors.Is(err, driver.ErrNoTicket) {
				t.Errorf("acquire: %v, want no ticket", err)
			}
			return err
		}(),
		"renew":   d.Renew(t.Context(), r.Hold(g.Token), time.Minute),
		"release": d.Release(t.Context(), r.Hold(g.Token)),
		"ping":    d.Ping(t.Context()),
	} {
		if !errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "read-only") {
			t.Errorf("%s: %v, want that the server is read-only", what, err)
		}
	}
	do(t, p.onPrimary, "SET GLOBAL read_only = 0")
	must(t, d.Release(t.Context(), r.Hold(g.Token)))
}

// So does one whose tables are read only. The error is that of innodb_read_only, which a server has to be started with.
func TestReadOnlyTableIsUnavailable(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		_, d, prefix := fresh(t, db)
		do(t, db, "CREATE TABLE "+prefix+"_part (n INT) ENGINE=MyISAM")
		do(t, db, "CREATE TABLE "+prefix+"_all (n INT) ENGINE=MERGE UNION=("+prefix+"_part) INSERT_METHOD=NO")
		_, err := db.ExecContext(t.Context(), "INSERT INTO "+prefix+"_all VALUES (1)")
		if class := d.Store().Class(err); err == nil || class != sqlqueue.Undone|sqlqueue.Down {
			t.Errorf("%v: class %d", err, class)
		}
	})
}

// Tokens grow over a failover to a replica that has lost the last commits: of a name that was held, of
// one that was free, and of one that is new to the replica.
func TestTokensGrowOverALossyFailover(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l, _, prefix := fresh(t, p.pool(t))
	cycle(t, l, "held")
	cycle(t, l, "free")
	held := take(t, l, "held", locker.WithTTL(3*time.Second))
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	must(t, held.Release(t.Context()))
	for i := range 20 {
		must(t, take(t, l, fmt.Sprint("once", i)).Release(t.Context()))
	}
	last := make(map[string]uint64)
	for range 5 {
		for _, name := range []string{"held", "free", "new"} {
			k := take(t, l, name)
			last[name] = k.Token()
			must(t, k.Release(t.Context()))
		}
	}
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.serve(p.replica)
	other, _ := join(t, p.pool(t), prefix)
	for i, l := range []*locker.Client{other, l, other, l} {
		for name := range last {
			k := take(t, l, name) // the name held: when the lease that came back is over
			if k.Token() <= last[name] {
				t.Errorf("%d: %s: token %d after %d", i, name, k.Token(), last[name])
			}
			last[name] = k.Token()
			must(t, k.Release(t.Context()))
		}
	}
}

// So they do after very many tries that were refused, each of which uses up numbers: several where
// auto_increment_increment is set, as in Group Replication.
func TestTokensGrowOverALossyFailoverAfterManyTries(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	p.config.Params = map[string]string{"auto_increment_increment": "7"}
	l, d, prefix := fresh(t, p.pool(t))
	k := take(t, l, "a")
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	for i := range 2000 {
		_, err := d.Acquire(t.Context(), driver.Request{Name: "a", ID: fmt.Sprint("try-", i), TTL: time.Minute})
		if !errors.Is(err, driver.ErrNotAcquired) {
			t.Fatalf("try: %v", err)
		}
	}
	must(t, k.Release(t.Context()))
	last := cycle(t, l, "new")
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.serve(p.replica)
	other, _ := join(t, p.pool(t), prefix)
	if token := cycle(t, other, "new"); token <= last {
		t.Errorf("token %d after %d", token, last)
	}
}

// Tokens grow also when the first primary takes over again, without the tokens that the second has given, as soon
// as a process that was granted a ticket on the second comes back.
func TestTokensGrowOverALossyWayBack(t *testing.T) {
	t.Parallel()
	p := newPair(t)
	l, _, prefix := fresh(t, p.pool(t))
	stays, _ := join(t, p.pool(t), prefix)
	cycle(t, l, "a")
	cycle(t, stays, "b")
	p.caughtUp(t)
	do(t, p.onReplica, "STOP SLAVE")
	do(t, p.onPrimary, "SET GLOBAL read_only = 1")
	p.serve(p.replica)
	last := cycle(t, l, "c")
	do(t, p.onReplica, "SET GLOBAL read_only = 1")
	do(t, p.onPrimary, "SET GLOBAL read_only = 0")
	p.serve(p.primary)
	for range 3 {
		for _, l := range []*locker.Client{l, stays} {
			token := cycle(t, l, "c")
			if token <= last {
				t.Errorf("token %d after %d", token, last)
			}
			last = token
		}
	}
}
