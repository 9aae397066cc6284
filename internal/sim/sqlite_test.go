package sim

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"modernc.org/sqlite"
	codes "modernc.org/sqlite/lib"

	"github.com/lockerproject/locker/driver"
)

func TestErrorsOfSQLite(t *testing.T) {
	errs := sqliteErrors()
	for err, want := range map[error]int{errs.full: codes.SQLITE_FULL, errs.locked: codes.SQLITE_BUSY} {
		if e := (*sqlite.Error)(nil); !errors.As(err, &e) || e.Code() != want {
			t.Errorf("%v, want code %d", err, want)
		}
	}
}

// A process that dies between a statement and its commit has written nothing, and is in nobody's way.
func TestDiesBeforeItsCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := &world{seed: 1, begun: time.Now(), used: make(map[int64]bool), names: make(map[string]string)}
		s := &server{w: w, name: "sqlite0"}
		d := newDisk(s)
		s.model = d
		defer d.remove()
		a, _, err := openDisk(s, "p0")
		b, way, err2 := openDisk(s, "p1")
		if err != nil || err2 != nil {
			t.Fatal(err, err2)
		}
		r := driver.Request{Name: "n", ID: "1", TTL: time.Minute}
		if _, err := a.Acquire(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		died := make(chan bool)
		go func() { died <- w.arm(faultPlan{on: "write", by: "p1", skip: 3}, way.kill) }() // it is not free; it is registered; it is not free; it is queued
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := b.Acquire(ctx, driver.Request{Name: "n", ID: "2", TTL: time.Minute, Wait: true}); !errors.Is(err, errDead) || !<-died {
			t.Error(err)
		}
		if there, _ := d.lease("n", "2", w.begun); there {
			t.Error("the ticket of the dead process is there")
		}
		if processes := d.rows("SELECT id FROM processes"); len(processes) != 1 {
			t.Errorf("%d processes were registered, want that which died when it was queued", len(processes))
		}
		if err := a.Release(t.Context(), r.Hold(0)); err != nil {
			t.Error(err)
		}
		_, _ = a.Close(), b.Close()
	})
}
