package postgres_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/postgres"
	"github.com/lockerproject/locker/internal/testbed"
)

// A request for a ticket that the network delivers after its caller has given up takes no ticket.
func TestLateRequestTakesNoTicket(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	proxy, prefix := srv.Proxy(t), unique()
	d, _ := newDriver(t, proxy.URL(), postgres.WithPrefix(prefix))
	admin, p := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	warm := driver.Request{Name: "warm", ID: "warm", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), warm)
	ok(t, err)
	ok(t, d.Release(t.Context(), warm.Hold(g.Token)))
	for _, wait := range []bool{false, true} {
		name := unique()
		_, err := d.Inspect(t.Context(), name) // on the connection that the request will use
		ok(t, err)
		proxy.Cut()
		before := proxy.Stats().Requests
		ctx, cancel := context.WithTimeout(t.Context(), time.Second) // enough to send it on a busy machine
		r := driver.Request{Name: name, ID: unique(), TTL: time.Minute, Wait: wait}
		_, err = d.Acquire(ctx, r)
		cancel()
		is(t, err, context.DeadlineExceeded)
		if errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("wait %v: an unanswered request is said to have left no ticket: %v", wait, err)
		}
		time.Sleep(100 * time.Millisecond)
		proxy.Heal()
		waitFor(t, "the request arrives", func() bool { return proxy.Stats().Requests > before })
		time.Sleep(300 * time.Millisecond)
		queue, err := admin.Inspect(t.Context(), name)
		ok(t, err)
		if len(queue) != 0 {
			t.Errorf("wait %v: a request that arrived late has taken a ticket", wait)
		}
	}
	if n := countTickets(t, p, prefix); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

// A request that waits inside the database for longer than its caller takes no ticket, either.
func TestRequestThatWaitsInTheDatabase(t *testing.T) {
	t.Parallel()
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix))
	r := driver.Request{Name: "warm", ID: "warm", TTL: time.Minute}
	g, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ok(t, d.Release(t.Context(), r.Hold(g.Token)))
	tx := begin(t, p)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock("+prefix+"_key"+postgres.Version+"('a'))")
	ok(t, err)
	answer := make(chan string, 1)
	until := time.Now().Add(200 * time.Millisecond).UnixMicro()
	go func() { // as a request whose caller has left, and whose cancellation was lost
		var s string
		err := p.QueryRow(t.Context(), "SELECT "+prefix+"_acquire"+postgres.Version+
			"('a', 'late', 7, false, 1, 60000000, false, '', '', $1)", until).Scan(&s)
		if err != nil {
			s = err.Error()
		}
		answer <- s
	}()
	time.Sleep(300 * time.Millisecond)
	ok(t, tx.Rollback(t.Context()))
	if s := <-answer; s == "" || s[0] != 't' {
		t.Errorf("the answer is %q, want that it is too late", s)
	}
	if n := countTickets(t, p, prefix); n != 0 {
		t.Errorf("%d tickets are left", n)
	}
}

// A request whose answer was lost has taken the ticket: the error does not say that it left none, although
// the next request was refused.
func TestLostAnswerLeavesATicket(t *testing.T) {
	t.Parallel()
	srv := testbed.SharedPostgres(t)
	proxy, prefix := srv.Proxy(t), unique()
	d, _ := newDriver(t, proxy.URL(), postgres.WithPrefix(prefix))
	admin, _ := newDriver(t, srv.URL(), postgres.WithPrefix(prefix))
	warm := driver.Request{Name: "warm", ID: "warm", TTL: time.Minute}
	_, err := d.Acquire(t.Context(), warm)
	ok(t, err)
	lost, refused := proxy.LoseReply("lost-reply"), make(chan struct{})
	go func() {
		defer close(refused)
		<-lost
		proxy.Refuse()
	}()
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	r := driver.Request{Name: "a", ID: "lost-reply", TTL: time.Minute}
	_, err = d.Acquire(ctx, r)
	<-refused // which may come after the answer to another try
	proxy.Heal()
	if err != nil { // not asked again in time
		if errors.Is(err, driver.ErrNoTicket) {
			t.Errorf("the error is %v", err)
		}
		queue, err := admin.Inspect(t.Context(), "a")
		ok(t, err)
		if len(queue) != 1 {
			t.Errorf("the queue is %v", queue)
		}
	}
	if err := d.Release(t.Context(), r.Hold(0)); err != nil { // nobody knows that the request has arrived
		is(t, err, driver.ErrUnavailable)
	}
	queue, err := admin.Inspect(t.Context(), "a")
	ok(t, err)
	if len(queue) != 0 {
		t.Errorf("after the release the queue is %v", queue)
	}
}

// A request for a ticket was not answered, and arrives when the ticket has been queued by another one and granted, before its
// process knows: that learns of the grant nevertheless.
func TestLateRequestForAGrantedTicket(t *testing.T) {
	prefix := unique()
	d, p := newDriver(t, testbed.SharedPostgres(t).URL(), postgres.WithPrefix(prefix), postgres.WithoutListen())
	r := driver.Request{Name: "a", ID: "1", TTL: time.Minute, Wait: true, Renewed: true}
	_, err := d.Acquire(t.Context(), r)
	ok(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 15*time.Second)
	defer cancel()
	r.ID, r.Joined = "2", func() {
		_, err := p.Exec(t.Context(), strings.NewReplacer("PREFIX", prefix, "VERSION", postgres.Version).Replace(
			`DO $$ BEGIN
				PERFORM PREFIX_releaseVERSION('a', '1', 0);
				PERFORM PREFIX_acquireVERSION('a', '2', 0, false, 1, 60000000, true, '', '', 9e18::bigint);
			END $$`), pgx.QueryExecModeSimpleProtocol)
		ok(t, err)
	}
	g, err := d.Acquire(ctx, r)
	ok(t, err)
	if in := time.Until(g.Asked); in > 0 {
		t.Errorf("the lease counts from a time that comes in %v", in)
	}
}
