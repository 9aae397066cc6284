package sqlite_test

import (
	"errors"
	"math"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// FuzzRow puts any row in the queue of a name. If it is live, nobody is granted past it, and Inspect shows it.
func FuzzRow(f *testing.F) {
	path := newPath(f)
	d := openAt(f, path)
	db := openDB(path)
	f.Cleanup(func() { _ = db.Close() })
	states := []string{"waiting", "provisional", "held"}
	f.Fuzz(func(t *testing.T, token int64, id, process, owner string, shared, permits, ttl int64, state uint8, since int64) {
		if id == "" || id == "id of this process" {
			return
		}
		for _, table := range []string{"tickets", "processes"} {
			if _, err := db.Exec("DELETE FROM " + table); err != nil {
				t.Fatal(err)
			}
		}
		var slot, expires any
		s := states[int(state)%len(states)]
		if s != "waiting" {
			expires = int64(math.MaxInt64 / 2)
			if shared == 0 {
				slot = 0
			}
		}
		number := int64(len(process))
		_, err := db.Exec(`INSERT INTO processes VALUES (?, ?, ?)`, number, since, math.MaxInt64/2)
		if err == nil {
			_, err = db.Exec(`INSERT INTO tickets VALUES (?, x'61', ?, ?, ?, ?, x'', ?, ?, ?, ?, ?, ?)`,
				token, slot, id, number, []byte(owner), shared, permits, ttl, s, since, expires)
		}
		if err != nil {
			return // the schema refuses it
		}
		g, acquired := d.Acquire(within(t), driver.Request{Name: "a", ID: "id of this process", TTL: time.Minute})
		queue, inspected := d.Inspect(within(t), "a")
		_, listed := d.List(within(t))
		if acquired == nil {
			t.Errorf("granted with token %d", g.Token)
		}
		if inspected == nil && (len(queue) != 1 || queue[0].Remaining < 0 || queue[0].Owner != owner || !errors.Is(acquired, driver.ErrNotAcquired)) {
			t.Errorf("the queue is %+v, and acquire: %v", queue, acquired)
		}
		if listed != nil || inspected != nil && token > 0 && shared>>1 == 0 {
			t.Errorf("inspect: %v, list: %v", inspected, listed)
		}
		_, _ = db.Exec("DELETE FROM sqlite_sequence") // so that a token can be the greatest that there is
	})
}

// FuzzFile damages the file: four pieces of it are overwritten. Whatever can be read of it, no call panics or hangs, and
// an error names the file.
func FuzzFile(f *testing.F) {
	path := newPath(f)
	d, err := sqlite.New(path)
	if err == nil {
		_, err = d.Acquire(within(f), driver.Request{Name: "a", ID: "1", TTL: time.Hour})
		err = errors.Join(err, d.Close())
	}
	if err != nil {
		f.Fatal(err)
	}
	whole, err := os.ReadFile(path)
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, at1, at2 uint16, piece1, piece2 []byte, size uint16) {
		damaged := append([]byte(nil), whole...)
		copy(damaged[int(at1)%len(damaged):], piece1)
		copy(damaged[int(at2)%len(damaged):], piece2)
		if size > 0 {
			damaged = damaged[:min(len(damaged), int(size))]
		}
		path := newPath(t)
		if err := os.WriteFile(path, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		d, err := sqlite.New(path, sqlite.WithBusyTimeout(time.Second))
		if err != nil {
			if !strings.Contains(err.Error(), path) {
				t.Errorf("%v does not name the file", err)
			}
			return
		}
		defer d.Close()
		_, inspected := d.Inspect(within(t), "a")
		_, listed := d.List(within(t))
		_, acquired := d.Acquire(within(t), driver.Request{Name: "a", ID: "2", TTL: time.Minute})
		for _, err := range []error{inspected, listed, acquired} {
			if err != nil && len(err.Error()) > 2000 {
				t.Errorf("%.200v…", err)
			}
		}
	})
}
