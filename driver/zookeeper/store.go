package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/kvqueue"
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// store is what the engine asks of a ZooKeeper.
//
// There is one session, that of the connection, and the client keeps it alive: the
// engine's sessions are its counters of tickets, all with the same ID. Ends of sessions
// and of tickets are pushed to the engine, since the store hears of them by the
// connection's events, without asking.
type store struct {
	engine     *kvqueue.Engine
	conn       *zk.Conn
	base       string // the node below which everything is
	acl        []zk.ACL
	asked      time.Duration // session timeout, while it is not known
	login      *login        // nil: none needed
	protocol   *protocol.Check
	forward    func(zk.Event)
	connection *connection // of conn, if it is the driver's own; else nil
	granted    granted
	reconnects reconnects

	mu         sync.Mutex
	sess       *session // nil: none at present
	over       bool     // conn was closed
	nodes      map[string]*node
	young, due []*node             // to be watched, the young ones later
	watching   bool                // by a background task
	watches    map[string]watch    // of nodes that are waited for, by path
	occupied   map[string]struct{} // parents that were not empty when last seen; a hint
	putting    map[string]int      // by ticket ID: creates that are under way
	searching  sync.Mutex          // one search for orphans at a time
}

func newStore(o options) *store {
	return &store{
		asked: defaultSession, base: o.base, acl: o.acl, forward: o.forward,
		protocol: protocol.New(o.version, "the node "+o.base+"/"+protocolNode, "delete that node"),
		nodes:    make(map[string]*node),
		watches:  make(map[string]watch),
		occupied: make(map[string]struct{}),
		putting:  make(map[string]int),
	}
}

// start begins to use a connection.
func (s *store) start(conn *zk.Conn) {
	s.conn = conn
	s.session() // if there is one already, its timeout is known from now on
	kvqueue.Go(s.engine, s.sweepAll)
}

// Agree implements kvqueue.Store (S1).
func (s *store) Agree(ctx context.Context, write bool) error {
	if s.closed() {
		return errClosedConn
	}
	if err := s.logIn(ctx); err != nil {
		return err
	}
	return s.protocol.Do(ctx, func(ctx context.Context) (string, error) {
		return call(ctx, s, func() (string, error) { return s.readVersion(write) })
	})
}

// class is that of all tickets: longer than any session, which makes every lease as
// long as the session.
const class = 1000 * time.Hour

// Class implements kvqueue.Store (S2). Nothing but the session keeps a ticket for a
// minimum hold, so it stays for as long as the server waits for a client that has gone,
// and then only if nobody has ended the session: the user's own connection would end
// it, or keep it for ever.
func (s *store) Class(ctx context.Context, r *driver.Request) (time.Duration, error) {
	if r.MinHold == 0 {
		return class, nil
	}
	if s.connection == nil {
		return 0, fmt.Errorf("%w: a minimum hold on a connection that is not the driver's own; open the store by URL", driver.ErrUnsupported)
	}
	if err := s.connected(ctx); err != nil {
		return 0, err // the timeout of the session is not known
	}
	timeout := s.timeout()
	if most := leaseOf(timeout); r.MinHold > most {
		return 0, fmt.Errorf("%w: a minimum hold of %v: a session of %v keeps a ticket for %v at most",
			driver.ErrUnsupported, r.MinHold, timeout, most)
	}
	return class, nil
}

// Open implements kvqueue.Store (S3): it returns the present session. That it is alive is
// shown by the first Put.
func (s *store) Open(ctx context.Context, _ time.Duration) (kvqueue.Session, error) {
	if err := s.connected(ctx); err != nil {
		return kvqueue.Session{}, err
	}
	now := s.session()
	if now == nil {
		return kvqueue.Session{}, s.offline()
	}
	return kvqueue.Session{ID: now.name(), TTL: now.lease()}, nil
}

// KeepAlive implements kvqueue.Store (S4).
func (s *store) KeepAlive(ctx context.Context, id string) (time.Duration, error) {
	before := s.session()
	if before != nil && before.name() != id || s.closed() {
		return 0, kvqueue.ErrSessionOver
	}
	if err := s.confirmOrReconnect(ctx); err != nil {
		return 0, err
	}
	now := s.session()
	switch {
	case now == nil:
		return 0, s.offline()
	case now.name() != id:
		return 0, kvqueue.ErrSessionOver
	case now != before:
		return 0, errSessionChanged
	}
	return now.lease(), nil
}

// End implements kvqueue.Store (S5). The session ends with the connection.
func (s *store) End(context.Context, string) error { return nil }

// Key implements kvqueue.Store (S6). The server makes it.
func (s *store) Key(string, string, int, bool) string { return "" }

// errSessionChanged is of a request that may have been done for either of two sessions.
var errSessionChanged = driver.Unavailable(errors.New("the session began while the request was under way"))

// Put implements kvqueue.Store (S7). Which transaction it tries first is a guess.
func (s *store) Put(ctx context.Context, p *kvqueue.Put) (kvqueue.Placed, error) {
	seen, _ := p.If.(*view)
	parent := s.parent(p.Name)
	defer s.beginPut(p.ID)()
	for {
		before := s.session()
		if before != nil && before.name() != p.Session {
			return kvqueue.Placed{}, kvqueue.ErrSessionOver
		}
		data := newRecord(p.Request, leaseOf(s.timeout()))
		fresh := seen == nil && !s.expectsOthers(parent) || seen != nil && seen.stat == nil
		got, err := call(ctx, s, func() (created, error) { return s.createTicket(parent, p.Request, data, fresh, seen) })
		switch {
		case err == nil && (before == nil || s.session() != before):
			err = errSessionChanged
		case err == nil:
			s.expectOthers(parent, got.children > 1)
			return s.placed(ctx, p, got, data), nil
		case errors.Is(err, zk.ErrNodeExists):
			s.expectOthers(parent, true)
			if seen == nil {
				continue
			}
			return kvqueue.Placed{}, kvqueue.ErrChanged
		case errors.Is(err, zk.ErrNoNode) && fresh:
			if err = s.createBase(ctx); err == nil {
				continue
			}
			return kvqueue.Placed{}, kvqueue.Refused(err)
		case errors.Is(err, zk.ErrNoNode), errors.Is(err, zk.ErrBadVersion), errors.Is(err, zk.ErrNotEmpty):
			s.expectOthers(parent, false)
			if seen == nil {
				continue
			}
			return kvqueue.Placed{}, kvqueue.ErrChanged
		case answered(err):
			return kvqueue.Placed{}, kvqueue.Refused(err)
		}
		if !errors.As(err, new(unsent)) {
			s.orphan(parent, p.ID)
		}
		return kvqueue.Placed{}, err
	}
}

// placed registers the node of a ticket. A shared one may be granted though it is not
// alone: that takes a listing.
func (s *store) placed(ctx context.Context, p *kvqueue.Put, got created, data []byte) kvqueue.Placed {
	e, _ := parseEntry(nodeOf(got.path))
	number := e.number(got.czxid)
	n := &node{path: got.path, name: p.Name, number: number}
	if p.Request.Limit > 0 {
		n.permit = data
	}
	s.register(n)
	placed := kvqueue.Placed{
		Number: number, Token: uint64(got.czxid), Key: got.path, Era: uint64(got.era), Alive: true,
		Granted: got.children == 1 || p.If != nil,
	}
	if placed.Granted || !p.Shared || p.Brief {
		return placed
	}
	v, err := s.list(ctx, s.parent(p.Name))
	if err != nil {
		return placed
	}
	ahead := slices.DeleteFunc(slices.Clone(v.Entries), func(e kvqueue.Entry) bool { return e.Number >= number })
	placed.Queue, placed.Granted = &v.Snapshot, kvqueue.Grants(ahead, p.Shared, p.Limit)
	switch {
	case p.Limit == 0:
	case !placed.Granted:
		s.willWait(n, p.Limit, ahead)
	case got.children > p.Limit: // one that was queued since has perhaps seen this one wait
		kvqueue.Go(s.engine, func(ctx context.Context) { s.mark(ctx, kvqueue.Ticket{Entry: kvqueue.Entry{Key: got.path}}) })
	}
	return placed
}

// Look implements kvqueue.Store (S8). Of a queue that is probably empty it needs to know
// nothing: Put finds out.
func (s *store) Look(ctx context.Context, r *driver.Request) (any, error) {
	parent := s.parent(r.Name)
	if !s.expectsOthers(parent) {
		return new(view), nil
	}
	if err := s.sync(ctx); err != nil {
		return nil, err
	}
	v, err := s.list(ctx, parent)
	if err != nil {
		return nil, err
	}
	others := slices.DeleteFunc(slices.Clone(v.Entries), func(e kvqueue.Entry) bool { return idOf(e.Key) == r.ID })
	switch {
	case !kvqueue.Grants(others, r.Shared, r.Limit):
		return nil, driver.ErrNotAcquired
	case v.stat == nil:
		s.expectOthers(parent, false)
	}
	return v, nil
}

// Delete implements kvqueue.Store (S9). The name's node is deleted with the last ticket.
func (s *store) Delete(ctx context.Context, t *kvqueue.Ticket) error {
	s.unregister(t.Key)
	parent, err := parentOf(t.Key), zk.ErrNotEmpty
	if !s.expectsOthers(parent) {
		err = do(ctx, s, func() error { return s.deleteLast(t.Key) })
	}
	if errors.Is(err, zk.ErrNotEmpty) {
		var left int
		left, err = call(ctx, s, func() (int, error) { return s.deleteTicket(t.Key, t.Held && !t.Shared) })
		switch {
		case err != nil:
		case left == 0:
			s.removeEmpty(ctx, parent)
		default:
			s.expectOthers(parent, true)
		}
	}
	if errors.Is(err, zk.ErrNoNode) {
		return driver.ErrLost
	}
	return err
}

// Withdraw implements kvqueue.Store (S10, S11). Nothing keeps a create that is in flight
// from being done: see orphan.
func (s *store) Withdraw(ctx context.Context, t *kvqueue.Ticket) error {
	return s.deleteAll(ctx, s.parent(t.Name), t.ID)
}

// Move implements kvqueue.Store (S12). There is one class.
func (s *store) Move(context.Context, *kvqueue.Ticket, string) error { return driver.ErrUnsupported }

// Read implements kvqueue.Store (S13). The server has answered this client's writes, so
// it has them.
func (s *store) Read(ctx context.Context, name string) (kvqueue.Snapshot, error) {
	v, err := s.list(ctx, s.parent(name))
	if err != nil {
		return kvqueue.Snapshot{}, err
	}
	return v.Snapshot, nil
}

// Losses implements kvqueue.Store (S17). The engine never asks: losses are pushed.
func (s *store) Losses(ctx context.Context, _ string, _ func(kvqueue.Loss)) error {
	<-ctx.Done()
	return nil
}

// Temporary implements kvqueue.Store (S20). An ensemble that has lost its leader has
// another soon.
func (s *store) Temporary(err error) bool {
	return driver.IsUnavailable(err)
}

// Explain implements kvqueue.Store (S21).
func (s *store) Explain(err error) error {
	ended := errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded)
	switch {
	case (err == nil || ended) && s.conn.State() != zk.StateHasSession && !s.closed():
		return s.offline()
	case ended:
		return driver.Unavailable(fmt.Errorf("%s has not answered", s.conn.Server()))
	}
	return err
}

func sessionName(id int64) string { return strconv.FormatInt(id, 16) }
