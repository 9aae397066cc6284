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
)

// openStore opens the file. If create is set it makes the file, its folder and its tables where they do not
// exist.
func openStore(ctx context.Context, path string, o options) (*store, error) {
	s := &store{
		busy: o.busy, intercept: o.intercept, stmts: make(map[string]*sql.Stmt),
		first: make(chan func()), jobs: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if s.boot, err = bootID(); err != nil {
		return nil, err
	}
	if s.path, err = prepare(path, o.create); err != nil {
		return nil, err
	}
	if s.opened, err = os.Stat(s.path); err != nil {
		return nil, err
	}
	// With mode=rw SQLite makes no file: prepare has made it, with its mode.
	dsn := url.URL{Scheme: "file", Path: s.path, RawQuery: "mode=rw"}
	if s.pool, err = sql.Open("sqlite", dsn.String()); err != nil {
		return nil, err
	}
	if s.conn, err = s.pool.Conn(ctx); err == nil {
		err = s.setUp(ctx, o.create)
	}
	if err != nil {
		return nil, errors.Join(s.explain(err), s.release())
	}
	go s.serve()
	return s, nil
}

// prepare makes the file if it does not exist, and returns its path without symbolic links. An existing file
// must be opened by SQLite only: closing another descriptor of it would release the locks that SQLite holds in
// this process.
func prepare(path string, create bool) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	if create {
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return "", fmt.Errorf("making the folder of the file: %w", err)
		}
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err == nil {
			err = f.Close()
		}
		if err != nil && !errors.Is(err, fs.ErrExist) {
			return "", fmt.Errorf("making the file: %w", err)
		}
	}
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !create:
		return "", fmt.Errorf("the file does not exist, and create=false (WithoutCreate) forbids creating it: %w", err)
	case err != nil:
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
				ready, err = t.setUp(m, create)
				return err
			})
		})
	}
	if err := attempt(reads); err != nil {
		return err
	}
	var journal string
	err := s.retryBusy(ctx, func() error {
		// With a write-ahead log, NORMAL keeps the database whole in any case. A loss of power may take the
		// last commits, for which sqlReboot skips tokens.
		_, err := s.conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL")
		return cmp.Or(err, s.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&journal))
	})
	if err == nil && journal != "wal" {
		err = fmt.Errorf("the file system does not support a write-ahead log: journal_mode stays %q", journal)
	}
	if err != nil || ready {
		return err
	}
	return attempt(writes)
}

// setUp reports whether the tables exist and are of this boot. If it may write, it makes them or, after a
// reboot, empties them: then all leases are over. It fails if the file is not for this program.
func (t *tx) setUp(m mode, create bool) (ready bool, err error) {
	var application, tables int64
	_, err1 := t.row([]any{&application}, "PRAGMA application_id")
	_, err2 := t.row([]any{&tables}, "SELECT count(*) FROM sqlite_master")
	if err := cmp.Or(err1, err2); err != nil {
		return false, err
	}
	switch {
	case tables == 0 && !create:
		return false, errors.New("the file is empty, and create=false (WithoutCreate) forbids creating tables in it")
	case tables > 0 && application != applicationID:
		return false, errors.New("the file is an SQLite database of another program")
	case tables > 0:
		if err := t.check(); !errors.Is(err, errOtherBoot) {
			return err == nil, err
		}
	}
	if m == reads {
		return false, nil
	}
	if tables == 0 {
		_, err = t.s.conn.ExecContext(uninterrupted, schema)
		return true, cmp.Or(err, t.exec(sqlFirstBoot, schemaVersion, t.s.boot))
	}
	_, err = t.s.conn.ExecContext(uninterrupted, sqlReboot)
	return true, cmp.Or(err, t.exec(sqlBoot, t.s.boot))
}

// checkReplaced fails if the path has another file than the one that was opened: programs that open the path
// now do not see the locks in this one.
func (s *store) checkReplaced() error {
	st, err := os.Stat(s.path)
	if err == nil && os.SameFile(st, s.opened) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s was removed or replaced while it was in use: restart the programs that use it", s.path), err)
}
