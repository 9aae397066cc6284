package memcached_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memcached"
	"github.com/lockerproject/locker/internal/testbed"
)

// A job of every 20 s whose processes end within a minimum hold of 15 s runs in each period, though the server's clock
// shows whole seconds, and in none twice.
func TestPeriodicJob(t *testing.T) {
	testbed.Nightly(t, "run it after a change to how processes that come and go share what they observe")
	t.Parallel()
	const hold, period = 15 * time.Second, 20 * time.Second
	srv := testbed.SharedMemcached(t)
	begun := time.Now()
	for i := range 4 {
		time.Sleep(time.Until(begun.Add(time.Duration(i) * period)))
		d, err := memcached.New([]string{srv.Addr()}, memcached.WithPrefix("period"))
		if err != nil {
			t.Fatal(err)
		}
		r := driver.Request{Name: "job", ID: fmt.Sprint("job", i), TTL: hold, MinHold: hold, Renewed: true}
		called := time.Now()
		g, err := d.Acquire(t.Context(), r)
		if err != nil {
			t.Fatalf("period %d: %v", i, err)
		}
		r.ID = fmt.Sprint("twice", i)
		if _, err := d.Acquire(t.Context(), r); err == nil {
			t.Errorf("period %d: granted twice", i)
		}
		r.ID = fmt.Sprint("job", i)
		if err := d.Shorten(t.Context(), r.Hold(g.Token), time.Until(called.Add(hold))); err != nil {
			t.Errorf("period %d: %v", i, err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
