package zookeeper

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

func init() {
	driver.Register("zookeeper", openURL)
	driver.Register("zookeepers", openURL)
}

// openURL opens a zookeeper:// or zookeepers:// URL. See the package comment for
// its parts.
func openURL(_ context.Context, u *driver.URL) (driver.Driver, error) {
	asked := u.Duration("session", defaultSession)
	prefix := u.Param("prefix", defaultPrefix)
	files := tlsFiles{
		ca: u.Param("ca", ""), cert: u.Param("cert", ""), key: u.Param("key", ""),
		serverName: u.Param("server_name", ""), insecure: u.Bool("insecure", false),
	}
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
	port, config := "2181", (*tls.Config)(nil)
	if u.Scheme == "zookeepers" {
		port = "2281"
		var err error
		if config, err = files.config(); err != nil {
			return nil, err
		}
	} else if files != (tlsFiles{}) {
		return nil, errors.New("ca, cert, key, server_name and insecure are for zookeepers://")
	}
	chroot, err := cleanPath(u.Path)
	if err != nil {
		return nil, err
	}
	if strings.Trim(prefix, "/") == "" {
		return nil, fmt.Errorf("parameter prefix=%q: want the name of a node", prefix)
	}
	d, err := prepare([]Option{WithPrefix(chroot + "/" + prefix)})
	if err != nil {
		return nil, err
	}
	hosts := u.HostsWithPort(port)
	d.owned, d.asked, d.name = true, asked, "zookeeper "+strings.Join(hosts, ",")+d.base
	if u.HasUser {
		d.acl = zk.AuthACL(zk.PermAll)
		d.login = newLogin(u.User, u.Password)
	}
	if err := d.dial(newConnection(hosts, config, asked)); err != nil {
		return nil, err
	}
	return d, nil
}

// tlsFiles are the TLS parameters of a URL.
type tlsFiles struct {
	ca, cert, key string // PEM files
	serverName    string
	insecure      bool
}

func (f tlsFiles) config() (*tls.Config, error) {
	c := &tls.Config{
		MinVersion: tls.VersionTLS12, ServerName: f.serverName,
		InsecureSkipVerify: f.insecure, //nolint:gosec // asked for by name
	}
	if f.ca != "" {
		pem, err := os.ReadFile(f.ca)
		if err != nil {
			return nil, fmt.Errorf("ca: %w", err)
		}
		c.RootCAs = x509.NewCertPool()
		if !c.RootCAs.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("ca: %s holds no certificate in PEM", f.ca)
		}
	}
	if (f.cert == "") != (f.key == "") {
		return nil, errors.New("cert and key: want both or neither")
	}
	if f.cert != "" {
		pair, err := tls.LoadX509KeyPair(f.cert, f.key)
		if err != nil {
			return nil, fmt.Errorf("cert and key: %w", err)
		}
		c.Certificates = []tls.Certificate{pair}
	}
	return c, nil
}

// dial opens the connection of a driver that has its own.
func (d *Driver) dial(c *connection) error {
	if _, err := timeoutField(new(zk.Conn)); err != nil {
		return err
	}
	q := &queue{more: make(chan struct{}, 1)}
	connected := make(chan struct{})
	conn, _, err := zk.Connect(c.hosts.names, d.asked,
		zk.WithLogger(silent{}), zk.WithLogInfo(false), zk.WithHostProvider(c.hosts), zk.WithDialer(c.dial),
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
