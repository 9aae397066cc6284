package zookeeper_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/go-zookeeper/zk"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/zookeeper"
	"github.com/lockerproject/locker/internal/testbed"
)

// TestEndBetweenTries: no server answers, and an Acquire ends in the pause between two tries. Its error says why it has ended,
// and why it could not connect (D16, D17).
func TestEndBetweenTries(t *testing.T) {
	t.Parallel()
	at := fmt.Sprintf("zookeeper://127.0.0.1:%d", testbed.Port(t))
	for _, end := range []time.Duration{1004 * time.Millisecond, 1008 * time.Millisecond, 1012 * time.Millisecond} { // a request waits for a second, and then there is a pause of 15 ms at least
		for _, closed := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, closed %v", end, closed), func(t *testing.T) {
				t.Parallel()
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				d := open(t, at)
				want := context.DeadlineExceeded
				if closed {
					want = driver.ErrClosed
					stop := time.AfterFunc(end, func() { _ = d.Close() })
					defer stop.Stop()
				} else {
					ctx, cancel = context.WithTimeout(ctx, end)
					defer cancel()
				}
				_, err := d.Acquire(ctx, request("x", "ends-1"))
				if !errors.Is(err, want) || !errors.Is(err, driver.ErrNoTicket) {
					t.Errorf("got %v, want %v", err, want)
				}
				if !closed && (!errors.Is(err, driver.ErrUnavailable) || !strings.Contains(err.Error(), "refused")) {
					t.Errorf("it does not say why it could not connect: %v", err)
				}
			})
		}
	}
}

// TestMinHoldDuringElection: while there is no session, a request with a minimum hold is tried as long as another.
func TestMinHoldDuringElection(t *testing.T) {
	t.Parallel()
	url, p, _ := through(t)
	p.Refuse()
	d := open(t, url)
	heal := time.AfterFunc(2*time.Second, p.Heal)
	defer heal.Stop()
	r := request("x", "kept-1")
	r.MinHold = time.Millisecond
	ctx := ctxFor(t, 30*time.Second)
	g := must[driver.Grant](t)(d.Acquire(ctx, r))
	if err := d.Release(ctx, r.Hold(g.Token)); err != nil {
		t.Error(err)
	}
}

// TestMinHoldOfOthersDuringOutage: a user's connection cannot keep a minimum hold. That needs no answer of a server.
func TestMinHoldOfOthersDuringOutage(t *testing.T) {
	t.Parallel()
	conn, events, err := zk.Connect([]string{fmt.Sprintf("127.0.0.1:%d", testbed.Port(t))}, session, zk.WithLogInfo(false), zk.WithLogger(quiet{}))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	d := must[*zookeeper.Driver](t)(zookeeper.New(conn, events))
	defer d.Close()
	r := request("x", "kept-1")
	r.MinHold = time.Second
	if _, err := d.Acquire(ctxFor(t, 30*time.Second), r); !errors.Is(err, driver.ErrUnsupported) || !errors.Is(err, driver.ErrNoTicket) {
		t.Errorf("a minimum hold: %v, want ErrUnsupported", err)
	}
}
