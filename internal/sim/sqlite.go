package sim

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"modernc.org/sqlite"

	lockerdriver "github.com/lockerproject/locker/driver"
	lockersqlite "github.com/lockerproject/locker/driver/sqlite"
	"github.com/lockerproject/locker/internal/machine"
)

// disk is the machine on which the processes of SQLite run. There is no model: the driver is the real one, and so is SQLite, on
// a file in a temporary folder. Each process has a connection of its own, between which SQLite keeps its locks also inside of
// one program. What passes between driver and SQLite is delayed, refused or broken off (sqlite_conn.go). The clock and the
// named pipes are the world's.
type disk struct {
	s      *server
	rnd    *stream
	folder string
	up     time.Duration // for which the machine had run in the beginning
	piped  string        // how notices arrive: "", "lossy" or "never"
	brief  bool          // the last process that closes the file ends its log: the oracles do not keep it open

	mu    sync.Mutex
	view  driver.Conn // of the oracles
	pipes map[string]*pipe
}

func newDisk(s *server) *disk {
	folder, err := os.MkdirTemp("", "locker-sim")
	if err != nil {
		panic(err)
	}
	d := &disk{s: s, rnd: newStream(s.w.seed, s.name), folder: folder, pipes: make(map[string]*pipe)}
	d.up, d.piped, d.brief = d.rnd.upTo(48*time.Hour), pick(d.rnd, "", "", "lossy", "never"), d.rnd.one(4)
	s.w.done = append(s.w.done, d.remove)
	return d
}

// sqliteLiveness is the driver's, which sends a heartbeat each quarter of it.
const sqliteLiveness = 3200 * time.Millisecond

// late is by how much a grant may be late: until the next heartbeat, if its notice was lost.
func (d *disk) late() time.Duration {
	if d.piped == "lossy" {
		return sqliteLiveness/4 + 500*time.Millisecond
	}
	return 500 * time.Millisecond
}

func (d *disk) file() string { return filepath.Join(d.folder, "locks.db") }

// remove removes the file, when the run is over.
func (d *disk) remove() {
	d.closeView()
	_ = os.RemoveAll(d.folder)
}

func (d *disk) closeView() {
	if d.view != nil {
		_ = d.view.Close()
	}
	d.view = nil
}

func (*disk) restart() bool { return false }

// clock is that of the machine.
func (d *disk) clock() int64 { return int64(d.up + time.Since(d.s.w.begun)) }

// trueTime is when the machine's clock has that time.
func (d *disk) trueTime(clock int64) time.Time {
	return d.s.w.begun.Add(time.Duration(clock) - d.up)
}

// rows returns the rows of a query; there are none as long as there is no database.
func (d *disk) rows(query string, args ...driver.Value) (all [][]driver.Value) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.view == nil {
		var err error
		if d.view, err = openFile(d.file()); err != nil {
			return nil
		}
	}
	if d.brief {
		defer d.closeView()
	}
	st, err := d.view.Prepare(query)
	if err != nil {
		return nil
	}
	defer st.Close()
	rows, err := st.Query(args) //nolint:staticcheck // its successor adds a context
	if err != nil {
		return nil
	}
	defer rows.Close()
	for {
		row := make([]driver.Value, len(rows.Columns()))
		if rows.Next(row) != nil {
			return all
		}
		all = append(all, row)
	}
}

func (d *disk) has(name string, token uint64) bool {
	end, ok := d.until(name, token)
	return ok && end.After(time.Now())
}

func (d *disk) until(name string, token uint64) (end time.Time, ok bool) {
	for _, row := range d.rows("SELECT expires FROM tickets WHERE name = ? AND token = ? AND state <> 'waiting'", []byte(name), int64(token)) { //nolint:gosec // tokens are small
		return d.trueTime(row[0].(int64)), true
	}
	return time.Time{}, false
}

func (d *disk) lease(name, id string, _ time.Time) (there bool, until time.Time) {
	const query = `SELECT t.expires, p.expires FROM tickets t LEFT JOIN processes p ON p.id = t.process WHERE t.name = ? AND t.id = ?`
	for _, row := range d.rows(query, []byte(name), id) {
		if end, held := row[0].(int64); held {
			return end > d.clock(), d.trueTime(end)
		}
		alive, _ := row[1].(int64)
		there = alive > d.clock()
	}
	return there, time.Time{}
}

func (d *disk) leftovers() (all []string) {
	for _, row := range d.rows("SELECT 'ticket', name FROM tickets UNION ALL SELECT 'process', id FROM processes") {
		all = append(all, fmt.Sprintf("%s %v", row[0], row[1]))
	}
	return all
}

// openFile opens a connection beside those of the processes.
func openFile(path string) (driver.Conn, error) {
	return new(sqlite.Driver).Open("file://" + path + "?mode=rw")
}

// sqliteErrors are SQLite's own, of a full disk, and of a file that another program has locked.
var sqliteErrors = sync.OnceValue(func() (errs struct{ full, locked error }) {
	folder, err := os.MkdirTemp("", "locker-sim")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(folder)
	for _, query := range []string{"PRAGMA max_page_count = 1; CREATE TABLE t (a)", "BEGIN EXCLUSIVE", "BEGIN EXCLUSIVE"} {
		c, err := new(sqlite.Driver).Open("file://" + filepath.Join(folder, "db"))
		if err != nil {
			panic(err)
		}
		defer c.Close()
		if _, err = c.(driver.ExecerContext).ExecContext(context.Background(), query, nil); errs.full == nil {
			errs.full = err
		}
		errs.locked = err
	}
	return errs
})

// sqliteDriver is deeper in checkedDisk than what checks its answers.
type sqliteDriver struct{ *lockersqlite.Driver }

type checkedDisk struct {
	*contract
	sqliteDriver
}

func openDisk(s *server, process string) (lockerdriver.Driver, *path, error) {
	d, p := s.model.(*disk), newPath(s, process)
	u, err := lockerdriver.ParseURL("sqlite://" + d.file())
	if err != nil {
		return nil, nil, err
	}
	opened, err := lockerdriver.Open(machine.With(context.Background(), &tenant{d, p}), u)
	if err != nil {
		return nil, nil, err
	}
	own := opened.(*lockersqlite.Driver)
	return checkedDisk{&contract{w: s.w, m: d, d: own, process: process, again: newStream(s.w.seed, "again").one(2)}, sqliteDriver{own}}, p, nil
}

// tenant is the machine as a process sees it.
type tenant struct {
	d *disk
	p *path
}

func (t *tenant) Clock() int64 { return t.d.clock() }

func (t *tenant) Connector(dsn string) driver.Connector { return diskConnector{t, dsn} }

var errNoPipes = errors.New("sim: no pipes")

func (t *tenant) Pipe(path string) (io.ReadWriteCloser, error) {
	if t.d.piped == "never" || t.p.isDead() {
		return nil, errNoPipes
	}
	p := &pipe{t.d, path, make(chan []byte, 64)}
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	t.d.pipes[path] = p
	return p, nil
}

// Notify writes to a pipe, whose reader reads a little later. If pipes lose lines, they were full.
func (t *tenant) Notify(path, line string) {
	t.d.mu.Lock()
	p := t.d.pipes[path]
	t.d.mu.Unlock()
	if p == nil || t.p.isDead() || t.d.piped == "lossy" && t.d.rnd.one(4) {
		return
	}
	t.d.s.w.at(time.Now().Add(t.d.rnd.upTo(2*time.Millisecond)), func() { _, _ = p.Write([]byte(line)) })
}

// pipe is a named pipe that a process reads. If it is full, a line is lost.
type pipe struct {
	d     *disk
	path  string
	lines chan []byte
}

func (p *pipe) Write(line []byte) (int, error) {
	select {
	case p.lines <- slices.Clone(line):
	default:
	}
	return len(line), nil
}

// Read reads a line, for which its caller has space.
func (p *pipe) Read(b []byte) (int, error) { return copy(b, <-p.lines), nil }

func (p *pipe) Close() error {
	p.d.mu.Lock()
	defer p.d.mu.Unlock()
	delete(p.d.pipes, p.path)
	return nil
}
