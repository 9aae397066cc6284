package mysql_test

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	gomysql "github.com/go-sql-driver/mysql"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/mysql"
	"github.com/lockerproject/locker/internal/testbed"
)

// Tickets of all kinds, of two processes, are granted one after the other, and tokens grow.
func TestKindsInTurn(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		a, _, prefix := fresh(t, connect(t, srv, ""))
		b, _ := join(t, connect(t, srv, "?clientFoundRows=true"), prefix)
		last := cycle(t, a, "a")
		for i, opts := range [][]locker.Option{nil, {locker.WithOwner("somebody"), locker.WithNote("else")}, {locker.Shared()}, {locker.Limit(2)}, nil} {
			for _, l := range []*locker.Client{a, b} {
				k, err := l.TryAcquire(t.Context(), "a", opts...)
				must(t, err)
				if k.Token() <= last {
					t.Errorf("%d: token %d after %d", i, k.Token(), last)
				}
				last = k.Token()
				queue, err := a.Inspect(t.Context(), "a")
				must(t, err)
				if len(queue.Tickets) != 1 || queue.Tickets[0].Token != last || queue.Tickets[0].Owner != k.Owner() || queue.Tickets[0].Shared != (i == 2 || i == 3) {
					t.Errorf("%d: %q holds %d, and the queue is %+v", i, k.Owner(), last, queue.Tickets)
				}
				if i < 2 || i == 4 {
					if k, err := a.TryAcquire(t.Context(), "a", locker.WithOwner("x")); !errors.Is(err, locker.ErrNotAcquired) {
						t.Errorf("%d: two hold a: %v, %v", i, k, err)
					}
				}
				must(t, k.Release(t.Context()))
			}
		}
	})
}

// A ticket that was released is neither renewed nor released again, and cannot be broken.
func TestReleasedTicketIsGone(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		l, d, _ := fresh(t, connect(t, srv, "?clientFoundRows=true"))
		cycle(t, l, "a")
		r := driver.Request{Name: "a", ID: "late-1", TTL: time.Minute}
		g, err := d.Acquire(t.Context(), r)
		must(t, err)
		h := r.Hold(g.Token)
		must(t, d.Release(t.Context(), h))
		for _, h := range []driver.Hold{h, r.Hold(0)} {
			if err := d.Renew(t.Context(), h, time.Minute); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a renewal after the release: %v", err)
			}
			if err := d.Release(t.Context(), h); !errors.Is(err, driver.ErrLost) {
				t.Errorf("a second release: %v", err)
			}
		}
		if err := d.Break(t.Context(), "a", g.Token); !errors.Is(err, driver.ErrLost) {
			t.Errorf("a break after the release: %v", err)
		}
		must(t, take(t, l, "a").Release(t.Context()))
	})
}

// An insertion whose caller has left leaves no ticket, whether it is executed before or after
// the release that undoes it.
func TestReleaseDuringAnInsertion(t *testing.T) {
	onBothAlone(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		direct, d, prefix := fresh(t, db)
		must(t, take(t, direct, "a").Release(t.Context()))
		tx, err := db.BeginTx(t.Context(), nil)
		must(t, err)
		lockRow(t, tx, fmt.Sprintf("SELECT %s FROM %s_slots WHERE %[1]s = %[3]d FOR UPDATE", mysql.SlotColumn, prefix, mysql.SlotOf("a")))
		r := driver.Request{Name: "a", ID: "gone-1", TTL: time.Minute, Wait: true}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		answer := make(chan error, 1)
		go func() {
			_, err := d.Acquire(ctx, r)
			answer <- err
		}()
		blocked(t, db)
		cancel()
		if err := <-answer; !errors.Is(err, context.Canceled) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("acquired while the slot is locked: %v", err)
		}
		var group sync.WaitGroup
		group.Go(func() {
			if err := ignoreLost(removeTicket(t.Context(), d, r.Hold(0))); err != nil {
				t.Error(err)
			}
		})
		time.Sleep(100 * time.Millisecond) // both wait for the slot
		must(t, tx.Commit())
		took := testbed.Elapsed(func() { must(t, take(t, direct, "a").Release(t.Context())) })
		if took > 2*time.Second {
			t.Errorf("what nobody holds was granted after %v", took)
		}
		group.Wait()
	})
}

// A lost answer, to any statement of a cycle, costs neither a ticket nor a lock.
func TestLostAnswers(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		d, direct, proxy := onProxy(t, srv)
		l := newClient(t, d)
		cycle(t, l, "warm")
		tokens := make(map[string]uint64) // the last, by name
		for i, statement := range []string{"INSERT INTO", "DELETE FROM"} {
			name := statement
			lost := proxy.LoseReply(statement)
			k := take(t, l, name)
			if k.Token() <= tokens[name] {
				t.Errorf("token %d after %d", k.Token(), tokens[name])
			}
			queue, err := direct.Inspect(t.Context(), name)
			must(t, err)
			if len(queue) != 1 || queue[0].Token != k.Token() {
				t.Errorf("%d is held, and the queue is %+v", k.Token(), queue)
			}
			must(t, k.Release(t.Context()))
			<-lost
			r := request("other"+fmt.Sprint(i), false)
			r.Name = name
			g, err := direct.Acquire(t.Context(), r)
			must(t, err)
			must(t, direct.Release(t.Context(), r.Hold(g.Token)))
			if g.Token <= k.Token() {
				t.Errorf("token %d after %d", g.Token, k.Token())
			}
			tokens[name] = cycle(t, l, name)
		}
	})
}

// relaying is a connector to a proxy that loses its server after a statement was executed, once: it answers with the error of its
// own client.
type relaying struct {
	sqldriver.Connector
	loses *atomic.Bool
}

func (r relaying) Connect(ctx context.Context) (sqldriver.Conn, error) {
	c, err := r.Connector.Connect(ctx)
	return relayingConn{panickingConn{c, new(atomic.Bool)}, r.loses}, err
}

type relayingConn struct {
	panickingConn
	loses *atomic.Bool
}

func (c relayingConn) ExecContext(ctx context.Context, text string, args []sqldriver.NamedValue) (sqldriver.Result, error) {
	result, err := c.panickingConn.ExecContext(ctx, text, args)
	if err == nil && strings.HasPrefix(text, "INSERT INTO") && c.loses.Swap(false) {
		return nil, &gomysql.MySQLError{Number: 2013, Message: "Lost connection to server during query"}
	}
	return result, err
}

// A proxy that has lost its server in the middle of a request says so: the request may have taken the ticket.
func TestProxyThatLosesItsServer(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		connector, err := gomysql.NewConnector(configOf(t, srv.URL()))
		must(t, err)
		var loses atomic.Bool
		db := sql.OpenDB(relaying{connector, &loses})
		t.Cleanup(func() { _ = db.Close() })
		l, d, _ := fresh(t, db)
		cycle(t, l, "warm")
		loses.Store(true)
		k, err := l.TryAcquire(t.Context(), "a")
		if err != nil {
			queue, _ := d.Inspect(t.Context(), "a")
			t.Fatalf("%v, and the queue is %+v", err, queue)
		}
		must(t, k.Release(t.Context()))
	})
}

// No row is left of tickets that are gone, however they ended.
func TestNothingIsLeft(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		db := connect(t, srv, "")
		l, _, prefix := fresh(t, db)
		k := take(t, l, "a")
		var group sync.WaitGroup
		for i := range 20 {
			group.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*20*time.Millisecond)
				defer cancel()
				if k, err := l.Acquire(ctx, "a"); err == nil {
					t.Errorf("acquired %d", k.Token())
				}
				if k, err := l.TryAcquire(t.Context(), "a"); err == nil {
					t.Errorf("acquired %d", k.Token())
				}
			})
		}
		group.Wait()
		must(t, k.Release(t.Context()))
		must(t, take(t, l, "a").Release(t.Context()))
		for deadline := time.Now().Add(10 * time.Second); count(t, db, prefix+"_tickets") > 0; time.Sleep(20 * time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatalf("%d rows are left", count(t, db, prefix+"_tickets"))
			}
		}
	})
}

// A try that was refused after an answer was lost may have taken a ticket by then, as far as its process can know: it is
// not ErrNotAcquired.
func TestRefusedAfterALostAnswer(t *testing.T) {
	onBoth(t, func(t *testing.T, srv *testbed.Server) {
		d, direct, proxy := onProxy(t, srv)
		held := request("held", false)
		g, err := direct.Acquire(t.Context(), held)
		must(t, err)
		warm := driver.Request{Name: "b", ID: "warm", TTL: time.Minute}
		h, err := d.Acquire(t.Context(), warm)
		must(t, err)
		must(t, d.Release(t.Context(), warm.Hold(h.Token)))
		lost := proxy.LoseReply("INSERT INTO")
		try := request("try", false)
		if _, err := d.Acquire(t.Context(), try); !errors.Is(err, driver.ErrUnavailable) || errors.Is(err, driver.ErrNotAcquired) || errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("a try while another holds: %v", err)
		}
		<-lost
		must(t, ignoreLost(removeTicket(t.Context(), d, try.Hold(0))))
		must(t, direct.Release(t.Context(), held.Hold(g.Token)))
	})
}
