//go:build unix

package compose

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/memory"
)

// empty is a store that has none of the tickets that it is asked to remove.
type empty struct{ *memory.Driver }

func (empty) Release(context.Context, driver.Hold) error { return driver.ErrLost }

// The removal of the orphans of a long outage costs little processor time: it does not
// grow with the square of their number.
func TestManyOrphans(t *testing.T) {
	const n = 20_000
	begun := cpuTime(t)
	synctest.Test(t, func(t *testing.T) {
		d := empty{memory.New()}
		defer d.Close()
		tasks := newBackground()
		o := newOrphans(d, tasks)
		defer tasks.wait()
		defer tasks.stop()
		for i := range n {
			o.add(driver.Hold{Name: "x", ID: strconv.Itoa(i)})
		}
		time.Sleep(time.Minute)
		if left, _ := o.next(); left != nil {
			t.Error("not all were looked for to the end")
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
