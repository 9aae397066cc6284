package sqlite

import (
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
)

// errAbsent says that there is nothing yet: no file, or no tables in it.
var errAbsent = errors.New("create=false (WithoutCreate) forbids creating what is missing")

// openStore opens the file. If there is nothing yet, and create is set, the first transaction that needs the file makes
// it: to look at a path must not make files there.
func openStore(ctx context.Context, path string, o options) (*store, error) {
	s := &store{
		options: o, stmts: make(map[string]*sql.Stmt),
		first: make(chan func()), jobs: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if s.boot, err = bootID(); err != nil {
		return nil, err
	}
	if s.path, err = absolute(path); err != nil {
		return nil, err
	}
	if err = s.open(ctx, false); errors.Is(err, errAbsent) && o.create {
		err = s.mayMake()
	}
	if err != nil {
		return nil, err
	}
	return s, nil
}

// absolute returns the absolute path of a file. The folder above one is where the system goes to from there, also if a link leads
// there: to drop link/.. from a path, as filepath.Abs does, may lead to another file.
func absolute(path string) (string, error) {
	const sep = string(filepath.Separator)
	whole, above := path, sep+".."+sep
	if !filepath.IsAbs(path) {
		folder, err := os.Getwd()
		if err != nil {
			return "", err
		}
		whole = folder + sep + path
	}
	i := strings.LastIndex(whole, above)
	if i < 0 {
		return filepath.Abs(path)
	}
	i += len(above)
	folder, err := filepath.EvalSymlinks(whole[:i])
	return filepath.Join(folder, whole[i:]), err
}

// open opens the file, and fails with errAbsent if there is nothing. With create it makes the file, its folder and its
// tables where they do not exist.
func (s *store) open(ctx context.Context, create bool) (err error) {
	path, err := prepare(s.path, create)
	if err != nil {
		return err
	}
	s.file, s.opened = path, make(map[string]fileID)
	st, err := os.Stat(path)
	if err == nil && st.Size() == 0 && !create {
		err = fmt.Errorf("the file is empty, and %w", errAbsent)
	}
	if err = cmp.Or(err, s.note(s.path, path)); err != nil {
		return err
	}
	// With mode=rw SQLite makes no file: prepare has made it, with its mode.
	dsn := url.URL{Scheme: "file", Path: path, RawQuery: "mode=rw"}
	if s.pool, err = s.connect(dsn.String()); err != nil {
		return err
	}
	if s.conn, err = s.pool.Conn(ctx); err == nil {
		err = s.setUp(ctx, create)
	}
	if err == nil {
		err = s.note(path+"-wal", path+"-shm")
	}
	if err != nil {
		err = errors.Join(s.explain(err), s.release())
	}
	s.isOpen.Store(err == nil)
	return err
}

func connect(dsn string) (*sql.DB, error) { return sql.Open("sqlite", dsn) }

// mayMake fails if the file and its folder cannot be made, or the file is there, empty, and not this user's to write.
func (s *store) mayMake() error {
	if err := mayOpen(s.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	folder := filepath.Dir(s.path)
	for {
		st, err := os.Stat(folder)
		switch {
		case errors.Is(err, fs.ErrNotExist) && folder != filepath.Dir(folder):
			folder = filepath.Dir(folder)
			continue
		case err == nil && !st.IsDir():
			err = fmt.Errorf("%s is not a folder", folder)
		case err == nil:
			err = cmp.Or(checkFileSystem(filepath.Join(folder, filepath.Base(s.path))), mayWrite(folder))
		}
		if err != nil {
			return fmt.Errorf("%s: the file cannot be made: %w", s.path, err)
		}
		return nil
	}
}

// making is held while a file is made. The descriptor that made it must be closed before SQLite opens the file: closing
// any descriptor of a file releases all locks that its process has on it.
var making sync.Mutex

// makeFile makes a file that does not exist. Tests replace it.
var makeFile = func(path string) error {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

// prepare makes the file if it does not exist, and returns its path without symbolic links. An existing file
// is opened by SQLite only: see making.
func prepare(path string, create bool) (string, error) {
	making.Lock()
	defer making.Unlock()
	if create {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", fmt.Errorf("making the folder of the file: %w", err)
		}
		if err := makeFile(path); err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making the file: %w", err)
		}
	}
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		return "", fmt.Errorf("the file does not exist, and %w: %w", errAbsent, err)
	}
	resolved, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	if st, err := os.Stat(resolved); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(fmt.Errorf("%s is not a file", resolved), err)
	}
	return resolved, checkFileSystem(resolved)
}

// setUp checks the tables, and makes them if there are none. Several processes may do so at the same time.
func (s *store) setUp(ctx context.Context, create bool) error {
	ready := false
	attempt := func(m mode) error {
		return s.retryBusy(ctx, func() error {
			return s.attempt(m, func(t *tx) (err error) {
				ready, err = t.setUp(create)
				return err
			})
		})
	}
	if err := attempt(reads); err != nil {
		return err
	}
	var journal string
	err := s.retryBusy(ctx, func() error {
		_, err := s.conn.ExecContext(ctx, sqlSettings)
		return cmp.Or(err, s.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&journal))
	})
	if err == nil && journal != "wal" {
		err = fmt.Errorf("the file system does not support a write-ahead log: journal_mode stays %q", journal)
	}
	switch {
	case err != nil:
		return err
	case ready:
		err = attempt(reads) // makes the log, if there was none
	default:
		err = attempt(writes)
	}
	if err == nil {
		_, err = s.conn.ExecContext(ctx, sqlNormal)
	}
	return err
}

// setUp reports whether the tables exist and are of this boot. If it may write, it makes them or, after a
// reboot, empties them: then all leases are over. It fails if the file is not for this program.
func (t *tx) setUp(create bool) (ready bool, err error) {
	if err := t.enter(); err != nil {
		return false, err
	}
	var application, tables int64
	_, err1 := t.row([]any{&application}, "PRAGMA application_id")
	_, err2 := t.row([]any{&tables}, "SELECT count(*) FROM sqlite_master")
	if err := cmp.Or(err1, err2); err != nil {
		return false, err
	}
	switch {
	case tables == 0 && !create:
		return false, fmt.Errorf("the file is empty, and %w", errAbsent)
	case tables > 0 && application != applicationID:
		return false, errors.New("the file is an SQLite database of another program")
	case tables > 0:
		if err := t.check(); !errors.Is(err, errOtherBoot) {
			return err == nil, err
		}
	}
	if !t.mayChange() {
		return false, nil
	}
	if tables == 0 {
		_, err = t.s.conn.ExecContext(uninterrupted, schema)
		return true, cmp.Or(err, t.exec(sqlFirstBoot, schemaVersion, t.s.boot))
	}
	_, err = t.s.conn.ExecContext(uninterrupted, sqlReboot)
	return true, cmp.Or(err, t.exec(sqlBoot, t.s.boot))
}

// note notes which files some paths have.
func (s *store) note(paths ...string) (err error) {
	for _, path := range paths {
		if s.opened[path], err = idOf(path); err != nil {
			return err
		}
	}
	return nil
}

// checkReplaced fails if a path has another file than the one that is open: the path that was given, which may lead
// elsewhere by now, that of the file, or those of SQLite's log and of the memory that its processes share. Programs that
// open the path now do not see the locks in these.
func (s *store) checkReplaced() error {
	for path, opened := range s.opened {
		if id, err := idOf(path); err != nil || !id.same(opened) {
			return errors.Join(fmt.Errorf("%s was removed or replaced while it was in use: restart the programs that use %s", path, s.path), err)
		}
	}
	return nil
}
