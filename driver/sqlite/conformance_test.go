package sqlite_test

import (
	"context"
	"database/sql"
	"errors"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/sqlite"
)

// TestConformance proves the driver with faults between it and the file. Other tests
// have the faults of real processes, which are killed and stopped, and of real disks.
func TestConformance(t *testing.T) {
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	h.Parallel = true
	conformance.Run(t, h)
}

func harness(t *testing.T) conformance.Harness {
	t.Helper()
	path := filepath.Join(t.TempDir(), "locks.db")
	const sweep = 2 * time.Second // see TestSweep
	disk := &disk{interceptor: link.NewInterceptor()}
	return conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) {
			return sqlite.New(path, sqlite.WithInterceptor(disk.pass), sqlite.WithSweep(sweep))
		},
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			g := link.NewInterceptor()
			d, err := sqlite.New(path, sqlite.WithInterceptor(func(ctx context.Context, access func() error) error {
				return g.Intercept(ctx, func() error { return disk.pass(ctx, access) })
			}), sqlite.WithSweep(sweep))
			return d, g, err
		},
		Server:   disk,
		Keys:     func(ctx context.Context) (int, error) { return rows(ctx, path) },
		AtOnce:   32, // most wait, and a store is a file
		Complete: true,
	}
}

// disk is the store of an embedded database, as a server that can fail.
type disk struct {
	interceptor *link.Interceptor
	dead        atomic.Bool
}

var errDead = driver.Unavailable(errors.New("the disk fails"))

func (d *disk) Kill()   { d.dead.Store(true) }
func (d *disk) Start()  { d.dead.Store(false) }
func (d *disk) Pause()  { d.interceptor.Cut() }
func (d *disk) Resume() { d.interceptor.Heal() }

func (d *disk) pass(ctx context.Context, access func() error) error {
	return d.interceptor.Intercept(ctx, func() error {
		if d.dead.Load() {
			return errDead
		}
		return access()
	})
}

// rows counts the rows of the tables that grow.
func rows(ctx context.Context, path string) (n int, err error) {
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	if err != nil {
		return 0, err
	}
	defer db.Close()
	err = db.QueryRowContext(ctx, `SELECT count(*) FROM tickets`).Scan(&n)
	return n, err
}
