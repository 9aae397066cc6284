package redisqueue

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/retry"
)

const (
	quiet      = 2 * time.Second // without a message, after which the connection is tested
	relisten   = 20 * time.Millisecond
	relistenTo = 200 * time.Millisecond
	renewEvery = 10 * time.Second // the shortest interval of renewals
)

// A Listener is one subscription to one channel. It connects when it is first
// started, and again whenever the connection breaks.
type Listener struct {
	client   redis.UniversalClient
	channel  string
	received func(payload string)
	back     func() // the subscription is up: messages may have been missed

	mu      sync.Mutex
	started bool
	closed  bool
	cancel  context.CancelFunc
	sub     *redis.PubSub
	up      bool          // the subscription works
	upSince time.Time     // up: since when
	renewed time.Time     // when Renew has last ended a subscription
	lastErr error         // why it does not work
	changed chan struct{} // closed, and replaced, when these change
	work    sync.WaitGroup
}

// NewListener makes a listener that is not started. received is called with each
// message, and back when the subscription has come up, both from one goroutine.
func NewListener(client redis.UniversalClient, channel string, received func(string), back func()) *Listener {
	return &Listener{client: client, channel: channel, received: received, back: back, changed: make(chan struct{})}
}

// Start begins to listen, once.
func (l *Listener) Start() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.started || l.closed {
		return
	}
	l.started = true
	ctx, cancel := context.WithCancel(context.Background())
	l.cancel = cancel
	l.work.Go(func() { l.run(ctx) })
}

// Up reports whether the subscription is up.
func (l *Listener) Up() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.up
}

// Renew ends the subscription, which then begins anew on a new connection, because a request
// sent at asked has shown that it is on another server than the requests: the address of the
// server leads to another one now, after a failover. It does so once in ten seconds at most:
// some servers count no subscribers.
func (l *Listener) Renew(asked time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed || !l.up || !l.upSince.Before(asked) || time.Since(l.renewed) < renewEvery {
		return
	}
	l.renewed = time.Now()
	if sub := l.sub; sub != nil { // a heartbeat does not wait until go-redis has connected again
		l.work.Go(func() { _ = sub.Close() }) // unblocks the goroutine
	}
}

// Err is why the subscription is not up, if that is known.
func (l *Listener) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lastErr
}

// Refused reports whether the server refuses the subscription: to this user, or to all.
func (l *Listener) Refused() bool { return refused(l.Err()) }

func refused(err error) bool {
	var answer redis.Error
	return errors.As(err, &answer) && !driver.IsUnavailable(Unavailable(err))
}

// ErrRefused says that the server refuses the subscription.
var ErrRefused = errors.New("the server refuses the subscription by which waiters are notified")

// Await starts to listen, if necessary, and waits until the subscription is up,
// ctx ends, stop is closed, or the server refuses.
func (l *Listener) Await(ctx context.Context, stop <-chan struct{}) error {
	l.Start()
	for {
		l.mu.Lock()
		up, changed, err := l.up, l.changed, l.lastErr
		l.mu.Unlock()
		switch {
		case up:
			return nil
		case refused(err):
			return fmt.Errorf("%w: %w", ErrRefused, err)
		}
		select {
		case <-changed:
		case <-stop:
			return ErrClosed
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		}
	}
}

// Close ends the subscription and the goroutine.
func (l *Listener) Close() {
	l.mu.Lock()
	l.closed = true
	sub := l.sub
	if l.cancel != nil {
		l.cancel()
	}
	l.mu.Unlock()
	if sub != nil {
		_ = sub.Close() // unblocks the goroutine
	}
	l.work.Wait()
}

func (l *Listener) run(ctx context.Context) {
	pause := retry.Backoff{First: relisten, Most: relistenTo}
	for ctx.Err() == nil {
		stood, err := l.listen(ctx)
		l.set(false, err)
		if stood {
			pause.Reset()
		}
		wait := pause.Next()
		if refused(err) {
			wait = renewEvery
		}
		retry.Sleep(ctx, wait, nil)
	}
}

// listen subscribes and passes messages on until the connection breaks.
func (l *Listener) listen(ctx context.Context) (stood bool, err error) {
	client := l.client
	if cluster, ok := client.(*redis.ClusterClient); ok { // each master notifies: if one is silent, the next attempt asks another one
		master, err := cluster.MasterForKey(ctx, rand.Text())
		if err != nil {
			return false, err
		}
		client = master
	}
	sub := client.Subscribe(ctx) // connects with the first channel
	l.mu.Lock()
	l.sub = sub
	l.mu.Unlock()
	defer sub.Close()
	if err := sub.Subscribe(ctx, l.channel); err != nil {
		return false, err
	}
	// When a connection breaks, go-redis connects again by itself, and keeps its mutex meanwhile, for which Close waits. It
	// does not with a context that has ended, if its dialer respects that.
	once, cancel := context.WithCancel(ctx)
	cancel()
	for pinged := false; ctx.Err() == nil; {
		msg, err := sub.ReceiveTimeout(once, quiet)
		var netErr net.Error
		switch {
		case err == nil:
			pinged = false
		case errors.As(err, &netErr) && netErr.Timeout() && !pinged:
			pinged = true
			if err := sub.Ping(once); err != nil {
				return stood, err
			}
			continue
		default:
			return stood, err
		}
		switch msg := msg.(type) {
		case *redis.Subscription:
			stood = true
			l.set(true, nil)
			l.back()
		case *redis.Message:
			l.received(msg.Payload)
		}
	}
	return stood, ctx.Err()
}

func (l *Listener) set(up bool, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.up, l.lastErr = up, err
	if up {
		l.upSince = time.Now()
	} else {
		l.sub = nil
	}
	close(l.changed)
	l.changed = make(chan struct{})
}
