package nats_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	natsgo "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/testbed"
)

// A bucket whose size is limited refuses new locks before it is full: what is held is renewed and released. So does one
// that is limited while it is in use.
func TestBucketFull(t *testing.T) {
	t.Parallel()
	for name, limit := range map[string]func(*jetstream.StreamConfig){
		"bytes":   func(c *jetstream.StreamConfig) { c.MaxBytes = 128 << 10 },
		"later":   func(c *jetstream.StreamConfig) { c.MaxBytes = 128 << 10 },
		"entries": func(c *jetstream.StreamConfig) { c.MaxMsgs = 300 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			srv := testbed.SharedNats(t)
			bucket := "full-" + name
			url := srv.URL() + "?bucket=" + bucket
			d := opened(t, url)
			if err := d.Ping(t.Context()); err != nil {
				t.Fatal(err)
			}
			limited(t, srv.Addr(), bucket, limit)
			if name != "later" {
				d = opened(t, url)
			}
			time.Sleep(1100 * time.Millisecond) // until the driver looks at the bucket again
			var held []driver.Renewal
			for {
				r := driver.Request{Name: fmt.Sprint("name", len(held)), ID: fmt.Sprint("id", len(held)), TTL: 20 * time.Second, Renewed: true}
				g, err := d.Acquire(t.Context(), r)
				if err != nil {
					_, err = d.Acquire(t.Context(), r) // now it knows that there is no queue
					if driver.IsUnavailable(err) || !errors.Is(err, driver.ErrNoTicket) || !strings.Contains(err.Error(), "max_") {
						t.Errorf("the lock %d is refused with %v", len(held), err)
					}
					break
				}
				held = append(held, driver.Renewal{Hold: r.Hold(g.Token), TTL: r.TTL})
				if len(held) > 1000 {
					t.Fatal("the limit of the bucket does not count")
				}
			}
			t.Logf("%d locks fit", len(held))
			for range 3 {
				for i, err := range d.RenewAll(t.Context(), held) {
					if err != nil {
						t.Fatalf("renewal of the lock %d of %d: %v", i, len(held), err)
					}
				}
			}
			for i, r := range held {
				if err := d.Release(t.Context(), r.Hold); err != nil {
					t.Fatalf("release of the lock %d of %d: %v", i, len(held), err)
				}
			}
		})
	}
}

// limited changes the configuration of a bucket.
func limited(t *testing.T, addr, bucket string, limit func(*jetstream.StreamConfig)) {
	t.Helper()
	info, err := stream(t.Context(), addr, bucket)
	if err != nil {
		t.Fatal(err)
	}
	nc, err := natsgo.Connect("nats://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	limit(&info.Config)
	if _, err := js.UpdateStream(t.Context(), info.Config); err != nil {
		t.Fatal(err)
	}
}

// The clock of the bucket runs as this machine's does, and is that of its server.
func TestClock(t *testing.T) {
	t.Parallel()
	d := opened(t, testbed.SharedNats(t).URL())
	first, err := d.Store().Time(t.Context())
	if err != nil || first.Clock == "" {
		t.Fatalf("%+v, %v", first, err)
	}
	const pause = 300 * time.Millisecond
	second := first
	passed := testbed.Elapsed(func() {
		time.Sleep(pause)
		second, err = d.Store().Time(t.Context())
	})
	if age := second.Earliest - first.Latest; err != nil || second.Clock != first.Clock || age < pause || age > passed+pause {
		t.Errorf("%v passed between %+v and %+v, %v", passed, first, second, err)
	}
}

// Another leader has another clock.
func TestClockOfLeaders(t *testing.T) {
	if testing.Short() {
		t.Skip("starts three servers")
	}
	t.Parallel()
	e := cluster(t)
	d := opened(t, e.URL())
	first, err := d.Store().Time(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	leader(t, e).Kill()
	second := first
	waitFor(t, time.Minute, "another clock", func() bool {
		second, err = d.Store().Time(t.Context())
		return err == nil && second.Clock != first.Clock
	})
	t.Logf("%s, then %s", first.Clock, second.Clock)
}
