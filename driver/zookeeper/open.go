package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// openURL opens zookeeper://[user:password@]host:port[,host:port…][/chroot].
//
// Parameters: session (timeout of the session, 10s), prefix (locker). With a
// user the connection authenticates by digest, and what it creates is that
// user's alone.
func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	asked := u.Duration("session", defaultSession)
	prefix := u.Param("prefix", defaultPrefix)
	if err := u.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, errors.New("no host: want zookeeper://host:2181")
	}
	if u.HasUser && (u.User == "" || strings.Contains(u.User, ":")) {
		return nil, errors.New("the user must not be empty, nor have a colon in it")
	}
	if asked < time.Millisecond || asked > 24*time.Hour {
		return nil, fmt.Errorf("parameter session=%v: want 1ms to 24h", asked)
	}
	chroot, err := cleanPath(u.Path)
	if err != nil {
		return nil, err
	}
	d, err := prepare([]Option{WithPrefix(chroot + "/" + prefix)})
	if err != nil {
		return nil, err
	}
	if strings.Trim(prefix, "/") == "" {
		return nil, fmt.Errorf("parameter prefix=%q: want the name of a node", prefix)
	}
	hosts := u.HostsWithPort("2181")
	d.owned, d.asked, d.name = true, asked, "zookeeper "+strings.Join(hosts, ",")+d.base
	return d, d.dial(hosts, u)
}

// dial opens the connection of a driver that has its own.
func (d *Driver) dial(hosts []string, u *driver.URL) error {
	d.way.others = len(hosts) > 1
	q := &queue{more: make(chan struct{}, 1)}
	conn, _, err := zk.Connect(hosts, d.asked,
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithDialer(d.way.keep(greeter(d.asked))),
		zk.WithEventCallback(func(ev zk.Event) {
			d.links.hear(ev)
			q.put(ev)
		}))
	if err != nil {
		return err
	}
	if u.HasUser {
		d.acl = zk.AuthACL(zk.PermAll)
		d.login = newLogin(u.User, u.Password)
	}
	d.start(conn, nil)
	d.work.Go(func() { d.listenQueue(q) })
	return nil
}

// greeter dials connections that are given up when the server does not answer
// the client's first words: it may hang, with its port still open. The client
// itself waits for nearly seven sessions, in which the one that it has ends, though
// others would serve it.
func greeter(session time.Duration) zk.Dialer {
	bound := max(session/5, time.Second)
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := (&net.Dialer{Timeout: timeout}).DialContext(context.Background(), network, address)
		if err != nil {
			return nil, err
		}
		return &greeting{Conn: conn, bound: bound}, nil
	}
}

// greeting is a connection on which the first answer is waited for no longer
// than bound.
type greeting struct {
	net.Conn
	bound    time.Duration
	answered bool
}

// SetReadDeadline takes the deadline back, with a zero time, when the first
// answer begins to come.
func (g *greeting) SetReadDeadline(t time.Time) error {
	if most := time.Now().Add(g.bound); !g.answered && t.After(most) {
		t = most
	}
	g.answered = g.answered || t.IsZero()
	return g.Conn.SetReadDeadline(t)
}

// login is the authentication of a connection, which has to come before
// anything else. The client repeats it by itself once it has succeeded.
type login struct {
	user string // and the password
	turn chan struct{}
	done atomic.Bool
}

func newLogin(user, password string) *login {
	return &login{user: user + ":" + password, turn: make(chan struct{}, 1)}
}

// logIn authenticates the connection unless that is done, or is not asked for.
func (d *Driver) logIn(ctx context.Context) error {
	l := d.login
	if l == nil || l.done.Load() {
		return nil
	}
	select {
	case l.turn <- struct{}{}:
		defer func() { <-l.turn }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.closing:
		return driver.ErrClosed
	}
	if l.done.Load() {
		return nil
	}
	_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.conn.AddAuth("digest", []byte(l.user)) })
	l.done.Store(err == nil)
	return err
}

// silent is a logger that says nothing: what goes wrong is in the errors.
type silent struct{}

func (silent) Printf(string, ...any) {}

// queue carries events from the client's goroutines, which must not wait, to
// the driver's. It loses none: the client's own channel does when it is full.
type queue struct {
	more chan struct{}

	mu     sync.Mutex
	events []zk.Event
}

func (q *queue) put(ev zk.Event) {
	q.mu.Lock()
	q.events = append(q.events, ev)
	q.mu.Unlock()
	select {
	case q.more <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (q *queue) take() []zk.Event {
	q.mu.Lock()
	defer q.mu.Unlock()
	events := q.events
	q.events = nil
	return events
}

// listenQueue is listen for a connection of our own.
func (d *Driver) listenQueue(q *queue) {
	for {
		select {
		case <-q.more:
			for _, ev := range q.take() {
				d.hear(ev)
			}
		case <-d.closing:
			return
		}
	}
}
