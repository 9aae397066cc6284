//go:build unix

package compose

import (
	"context"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/internal/retry"
)

// empty is a store that has none of the tickets that it is asked to remove.
type empty struct {
	*memory.Driver
	asked atomic.Int64
}

func (d *empty) Release(context.Context, driver.Hold) error {
	d.asked.Add(1)
	return driver.ErrLost
}

// The removal of the orphans of a long outage costs little processor time: it does not
// grow with the square of their number.
func TestManyOrphans(t *testing.T) {
	const n = 20_000
	begun := cpuTime(t)
	synctest.Test(t, func(t *testing.T) {
		d := &empty{Driver: memory.New()}
		defer d.Close()
		tasks := newBackground()
		o := newOrphans(d, tasks)
		defer tasks.wait()
		defer tasks.stop()
		for i := range n {
			o.add(driver.Hold{Name: "x", ID: strconv.Itoa(i)})
		}
		time.Sleep(time.Minute)
		if asked := d.asked.Load(); asked != n*(1+int64(len(retry.LateChecks))) {
			t.Errorf("looked for %d tickets %d times", n, asked)
		}
	})
	if took := cpuTime(t) - begun; took > 10*time.Second {
		t.Errorf("took %v of the processor for %d tickets", took, n)
	}
}

// cpuTime is the processor time that this process has used.
func cpuTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
