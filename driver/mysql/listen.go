package mysql

import (
	"context"
	"database/sql"
	sqldriver "database/sql/driver"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/lockerproject/locker/driver/internal/sqlqueue"
	"github.com/lockerproject/locker/internal/retry"
)

// How a process is woken is in the package comment. It sleeps by GET_LOCK: SLEEP would do, but where several connections
// sleep, MariaDB's KILL QUERY of one may take two seconds, and holds up the others. A statement begins to sleep only if it
// finds no grant that the process does not know, so none is missed in between.
//
// The name of the lock has the number of the connection and the start of the server that has given it: nothing is
// interrupted on a server that was restarted since, or is another one, and may have given the number to somebody else.

// listening is what wakes a process: a connection, and the start of its server. 0: nothing.
type listening struct {
	server     uint64
	connection int64
}

const (
	sleepFor    = 2               // seconds
	sleepBound  = 3 * time.Second // for the answer beyond that: the network may have been cut
	listenBound = 10 * time.Second
)

// errDeaf says that connections cannot be woken: by a proxy, or by processes of another account.
var errDeaf = fmt.Errorf("a sleeping connection cannot be interrupted: %w", sqlqueue.ErrNoNotices)

// How a sleep ended.
const (
	woken   = 1
	unknown = 2 // it did not begin: there is a grant that is not known
	changed = 3 // it did not begin: the row of the process has another connection
	awake   = 4 // the other connection has ended, or the server was demoted
)

// Listen implements sqlqueue.Notifier.
func (s *store) Listen(ctx context.Context, process int64, in *sqlqueue.Inbox) error {
	bounded, cancel := context.WithTimeout(ctx, listenBound)
	defer cancel()
	raiseLimit(s.db, 2)
	var c, other *sql.Conn
	c, err := s.db.Conn(bounded)
	if err == nil {
		other, err = s.db.Conn(bounded)
	}
	defer func() {
		s.listening.Store(&listening{})
		raiseLimit(s.db, -2) // first, so that nobody else opens a connection in their stead
		for _, c := range []*sql.Conn{c, other} {
			if c != nil {
				discard(c)
			}
		}
	}()
	if err != nil {
		return err
	}
	var on listening
	if err := c.QueryRowContext(bounded, s.w.render("self", nil)).Scan(&on.server, &on.connection); err != nil {
		return err
	}
	first := sqlqueue.Channel(process) << 16
	l := &listener{s: s, c: c, in: in, v: values{"process": first, "last": first + 1<<16 - 1, "start": on.server, "connection": on.connection}}
	if _, err := other.ExecContext(bounded, s.w.render("bed", l.v)); err != nil {
		return err
	}
	// In other isolation levels the statement that sleeps would keep old versions of rows from being purged.
	if _, err := c.ExecContext(bounded, "SET SESSION TRANSACTION ISOLATION LEVEL READ UNCOMMITTED"); err != nil {
		return err
	}
	s.listening.Store(&on)
	v := maps.Clone(l.v).with(values{"process": process}) // its row, if the ID has not changed since: a range would lock the rows of others
	if _, _, err := s.exec(bounded, "listening", v); err != nil {
		return err
	}
	if err := l.test(ctx); err != nil {
		return err
	}
	in.Ready()
	for {
		if err := l.next(ctx); err != nil {
			return err
		}
	}
}

// A listener is a connection that sleeps.
type listener struct {
	s  *store
	c  *sql.Conn
	in *sqlqueue.Inbox
	v  values // of its statements

	known []uint64 // the tokens of grants
}

// test finds out whether the connection can be woken.
func (l *listener) test(ctx context.Context) error {
	slept := make(chan struct{})
	tested := make(chan struct{})
	go func() {
		defer close(tested)
		backoff := retry.Backoff{First: 50 * time.Millisecond, Most: time.Second} // many may begin at once
		for retry.Sleep(ctx, backoff.Next(), slept) {
			_, _, _ = l.s.exec(ctx, "wake", l.v)
		}
	}()
	how, err := l.sleep(ctx)
	close(slept)
	<-tested
	if err == nil && how == 0 {
		err = errDeaf
	}
	return err
}

// sleep sleeps until it is woken, or for a while (0).
func (l *listener) sleep(ctx context.Context) (how int, err error) {
	ctx, cancel := context.WithTimeout(ctx, sleepFor*time.Second+sleepBound)
	defer cancel()
	v := maps.Clone(l.v).with(values{"key": sleepFor, "seqs": append(l.known, 0)}) // NOT IN needs one
	err = l.c.QueryRowContext(ctx, l.s.w.render("sleep", v)).Scan(&how)
	if code(err) == errInterrupted {
		return woken, nil
	}
	if how == awake {
		err = sqldriver.ErrBadConn
	}
	return how, err
}

// next sleeps, and then reads what has happened.
func (l *listener) next(ctx context.Context) error {
	how, err := l.sleep(ctx)
	if err != nil || how == 0 {
		return err
	}
	if how == changed {
		if n, _, err := l.s.exec(ctx, "listening_still", l.v); err != nil || n == 0 {
			return errDeaf
		}
		return nil
	}
	rows, err := l.c.QueryContext(ctx, l.s.w.render("granted", l.v))
	grants, err := scanAll(rows, err, func(rows *sql.Rows) (g sqlqueue.Grant, err error) {
		err = rows.Scan(&g.Token, &g.ID, &g.Heartbeat)
		return g, err
	})
	if rolledBack(err) { // it does not sleep until it has read them
		return nil
	}
	if err != nil {
		return err
	}
	known, news := l.known, false
	l.known = nil
	for _, g := range grants {
		l.known = append(l.known, g.Token)
		if !slices.Contains(known, g.Token) {
			l.in.Granted(g)
			news = true
		}
	}
	if how == woken && !news { // a ticket was broken, or a lease ends sooner
		l.in.Missed()
	}
	return nil
}
