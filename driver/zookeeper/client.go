package zookeeper

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
)

// dial opens the connection of a driver that has its own.
func (d *Driver) dial(c *connection) error {
	if _, err := timeoutField(new(zk.Conn)); err != nil {
		return err
	}
	events := &events{more: make(chan struct{}, 1)}
	connected := make(chan struct{})
	conn, _, err := zk.Connect(c.hosts.names, d.asked,
		zk.WithLogger(clientLogger{d.logger}), zk.WithLogInfo(d.logger != nil), zk.WithHostProvider(c.hosts), zk.WithDialer(c.dial),
		zk.WithEventCallback(func(ev zk.Event) {
			if ev.Type == zk.EventSession && ev.State == zk.StateHasSession {
				<-connected // it follows at once
				d.granted.begun()
				c.hasSession()
			}
			d.reconnects.observe(ev)
			events.add(ev)
		}))
	if err != nil {
		return err
	}
	d.granted = granted{own: new(atomic.Int64)}
	d.granted.field, _ = timeoutField(conn)
	d.connection = c
	d.start(conn, nil)
	close(connected)
	d.work.Go(func() { d.handleAll(events) })
	return nil
}

// events carries events from the client's goroutines, which must not wait, to the
// driver's. It loses none: the client's own channel does when it is full.
type events struct {
	more chan struct{}

	mu    sync.Mutex
	queue []zk.Event
}

func (e *events) add(ev zk.Event) {
	e.mu.Lock()
	e.queue = append(e.queue, ev)
	e.mu.Unlock()
	select {
	case e.more <- struct{}{}:
	default:
	}
}

// take empties the queue.
func (e *events) take() []zk.Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	queue := e.queue
	e.queue = nil
	return queue
}

// handleAll is listen for a connection of the driver's own.
func (d *Driver) handleAll(e *events) {
	for {
		select {
		case <-e.more:
			for _, ev := range e.take() {
				d.handle(ev)
			}
		case <-d.closing:
			return
		}
	}
}

// clientLogger is what the client logs to: nowhere unless WithLogger says where, since
// errors are returned.
type clientLogger struct{ to *slog.Logger }

func (l clientLogger) Printf(format string, args ...any) {
	if l.to != nil {
		l.to.Info(fmt.Sprintf(format, args...))
	}
}

// login is the authentication of a connection, which has to come before anything else.
// The client repeats it by itself once it has succeeded.
type login struct {
	credentials string        // user:password
	busy        chan struct{} // held by who logs in
	done        atomic.Bool
}

func newLogin(user, password string) *login {
	return &login{credentials: user + ":" + password, busy: make(chan struct{}, 1)}
}

// logIn authenticates the connection unless that is done, or is not needed.
func (d *Driver) logIn(ctx context.Context) error {
	l := d.login
	if l == nil || l.done.Load() {
		return nil
	}
	select {
	case l.busy <- struct{}{}:
		defer func() { <-l.busy }()
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-d.closing:
		return driver.ErrClosed
	}
	if l.done.Load() {
		return nil
	}
	_, err := call(ctx, d, func() (struct{}, error) { return struct{}{}, d.conn.AddAuth("digest", []byte(l.credentials)) })
	l.done.Store(err == nil)
	return err
}
