package zookeeper

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
)

func init() {
	for _, scheme := range []string{"zookeeper", "zookeepers"} {
		driver.Register(scheme, func(_ context.Context, u *driver.URL) (driver.Driver, error) {
			d, err := openURL(u, nil)
			if err != nil {
				return nil, err
			}
			return d, nil
		})
	}
}

// Open makes a Driver with a connection of its own from a URL, as locker.Open does,
// and takes options besides, such as [WithLogger], which count for more than what
// the URL says. It waits for no server.
func Open(_ context.Context, url string, opts ...Option) (*Driver, error) {
	u, err := driver.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: open: %w", err)
	}
	if u.Scheme != "zookeeper" && u.Scheme != "zookeepers" {
		return nil, fmt.Errorf("zookeeper: open: scheme %q: want zookeeper or zookeepers", u.Scheme)
	}
	d, err := openURL(u, opts)
	if err != nil {
		return nil, fmt.Errorf("zookeeper: open %s: %w", u.Redacted(), err)
	}
	return d, nil
}

// openURL opens a zookeeper:// or zookeepers:// URL. See the package comment for
// its parts.
func openURL(u *driver.URL, opts []Option) (*Driver, error) {
	asked := u.Duration("session", defaultSession)
	prefix := u.Param("prefix", defaultPrefix)
	dialTimeout := u.Duration("dial_timeout", time.Second)
	password := u.Secret("password_file", u.Password)
	secure := tlsurl.Config(u, u.Scheme == "zookeepers")
	if asked < time.Millisecond || asked > 24*time.Hour {
		u.Refuse(fmt.Errorf("parameter session=%v: want 1ms to 24h", asked))
	}
	if strings.Trim(prefix, "/") == "" {
		u.Refuse(fmt.Errorf("parameter prefix=%q: want the name of a node", prefix))
	}
	if err := u.Done(); err != nil {
		return nil, err
	}
	if len(u.Hosts) == 0 {
		return nil, errors.New("no host: want zookeeper://host:2181")
	}
	if (u.HasUser || password != "") && (u.User == "" || strings.Contains(u.User, ":")) {
		return nil, errors.New("the user must not be empty, nor have a colon in it")
	}
	port := "2181"
	if secure != nil {
		port = "2281"
	}
	chroot, err := cleanPath(u.Path)
	if err != nil {
		return nil, err
	}
	all := []Option{WithPrefix(chroot + "/" + prefix)}
	if u.HasUser {
		all = append(all, WithACL(zk.AuthACL(zk.PermAll)...))
	}
	d, err := prepare(append(all, opts...))
	if err != nil {
		return nil, err
	}
	hosts := u.HostsWithPort(port)
	d.owned, d.asked, d.name = true, asked, "zookeeper "+strings.Join(hosts, ",")+d.base
	if u.HasUser {
		d.login = newLogin(u.User, password)
	}
	if err := d.dial(newConnection(hosts, secure, dialTimeout, asked)); err != nil {
		return nil, err
	}
	return d, nil
}

// dial opens the connection of a driver that has its own.
func (d *Driver) dial(c *connection) error {
	if _, err := timeoutField(new(zk.Conn)); err != nil {
		return err
	}
	q := &queue{more: make(chan struct{}, 1)}
	connected := make(chan struct{})
	conn, _, err := zk.Connect(c.hosts.names, d.asked,
		zk.WithLogger(clientLogger{d.logger}), zk.WithLogInfo(d.logger != nil), zk.WithHostProvider(c.hosts), zk.WithDialer(c.dial),
		zk.WithEventCallback(func(ev zk.Event) {
			if ev.Type == zk.EventSession && ev.State == zk.StateHasSession {
				<-connected // it follows at once
				d.granted.begun()
				c.hasSession()
			}
			d.links.hear(ev)
			q.put(ev)
		}))
	if err != nil {
		return err
	}
	d.granted = granted{own: new(atomic.Int64)}
	d.granted.field, _ = timeoutField(conn)
	d.connection = c
	d.start(conn, nil)
	close(connected)
	d.work.Go(func() { d.listenQueue(q) })
	return nil
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

// clientLogger is what the client logs to: nowhere unless WithLogger says where,
// since what goes wrong is in the errors.
type clientLogger struct{ to *slog.Logger }

func (l clientLogger) Printf(format string, args ...any) {
	if l.to != nil {
		l.to.Info(fmt.Sprintf(format, args...))
	}
}

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
