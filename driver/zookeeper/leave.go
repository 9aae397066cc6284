package zookeeper

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/go-zookeeper/zk"
)

// way is the connection that the client has at present, where it is our own.
type way struct {
	others bool // there are other servers to go to

	mu   sync.Mutex
	conn net.Conn
}

// keep has the dialer's connections noted.
func (w *way) keep(dial zk.Dialer) zk.Dialer {
	return func(network, address string, timeout time.Duration) (net.Conn, error) {
		conn, err := dial(network, address, timeout)
		if err == nil {
			w.mu.Lock()
			w.conn = conn
			w.mu.Unlock()
		}
		return conn, err
	}
}

func (w *way) present() net.Conn {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.conn
}

// proveOrLeave is prove for a renewal. One that is not answered in its time
// has the client leave the server, which hangs or is cut off from the others,
// for another: by itself it would notice after two thirds of the session, when
// the leases are over. A caller's own impatience is no reason, nor is one
// request that was lost while others are confirmed.
func (d *Driver) proveOrLeave(ctx context.Context) error {
	sent, s, conn := time.Now(), d.session(), d.way.present()
	err := d.prove(ctx)
	if err == nil || ctx.Err() == nil || s == nil || conn == nil || !d.way.others {
		return err
	}
	if time.Since(sent) > s.lease()/8 && s.provedAt().Before(sent) {
		_ = conn.Close() // the client notices, and goes to the next server
	}
	return err
}
