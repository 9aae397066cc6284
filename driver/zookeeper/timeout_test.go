package zookeeper

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestOldSessionID has the session end while someone is about to compare its
// ID: the tickets of the next session are not taken for lost.
func TestOldSessionID(t *testing.T) {
	p := testbed.SharedZookeeper(t).Proxy(t)
	conn, _, err := zk.Connect([]string{p.Addr()}, time.Second, zk.WithLogInfo(false), zk.WithLogger(clientLogger{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d, err := prepare(nil)
	if err != nil {
		t.Fatal(err)
	}
	d.conn, d.reconnects.unknown = conn, true
	if d.granted.field, err = timeoutField(conn); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	if err := d.connected(ctx); err != nil {
		t.Fatal(err)
	}
	old := d.session()

	d.mu.Lock()
	asked := make(chan struct{})
	go func() {
		d.session()
		close(asked)
	}()
	time.Sleep(50 * time.Millisecond) // it waits for the lock
	p.Cut()
	time.Sleep(3 * time.Second) // the session ends
	p.Reset()
	p.Heal()
	for conn.SessionID() == old.id || conn.State() != zk.StateHasSession {
		if ctx.Err() != nil {
			t.Fatal("no other session")
		}
		time.Sleep(time.Millisecond)
	}
	// Somebody has noticed, and has a ticket.
	d.sess = newSession(conn.SessionID(), time.Second)
	h := driver.Hold{Name: "x", ID: "new-1"}
	d.tickets[h.ID] = &ticket{hold: h, path: "/locker/x/new-1_x_0000000000", sess: d.sess, held: true}
	d.mu.Unlock()
	<-asked
	if d.ticketOf(h) == nil {
		t.Error("the ticket of the new session was lost with the old one")
	}
}

// TestTimeoutNotShown refuses a client whose session timeout cannot be read.
func TestTimeoutNotShown(t *testing.T) {
	for name, conn := range map[string]any{
		"renamed": &struct{ timeoutMs int32 }{}, "another type": &struct{ sessionTimeoutMs string }{},
	} {
		if _, err := timeoutField(conn); !errors.Is(err, driver.ErrUnsupported) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := timeoutField(&zk.Conn{}); err != nil {
		t.Error(err)
	}
}
