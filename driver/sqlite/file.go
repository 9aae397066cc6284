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

	_ "modernc.org/sqlite" // the database, as "sqlite"
)

// openStore opens the file, and makes it, its folder and its tables if create says so.
func openStore(ctx context.Context, path string, o options) (*store, error) {
	s := &store{
		busy: o.busy, through: o.through, stmts: make(map[string]*sql.Stmt),
		jobs: make(chan func()), quit: make(chan struct{}), ended: make(chan struct{}),
	}
	var err error
	if s.boot, err = boot(); err != nil {
		return nil, err
	}
	if s.path, err = prepare(path, o.create); err != nil {
		return nil, err
	}
	if s.opened, err = os.Stat(s.path); err != nil {
		return nil, err
	}
	// The file was made above, with its mode: mode=rw makes none.
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
	go s.run()
	return s, nil
}

// prepare makes the file, if need be, and returns its path without symbolic links.
// A file that is there must not be opened but by SQLite: closing it would give up
// the locks that SQLite holds on it in this process.
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
		switch {
		case err == nil:
			err = f.Close()
		case errors.Is(err, fs.ErrExist):
			err = nil
		}
		if err != nil {
			return "", fmt.Errorf("making the file: %w", err)
		}
	}
	resolved, err := filepath.EvalSymlinks(path)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !create:
		return "", fmt.Errorf("there is no file, and it is not to be made: %w", err)
	case err != nil:
		return "", err
	}
	if st, err := os.Stat(resolved); err != nil || !st.Mode().IsRegular() {
		return "", errors.Join(fmt.Errorf("%s is not a file", resolved), err)
	}
	return resolved, checkPlace(resolved)
}

// setUp sees whether the tables are for us, and makes them if there are none. Several
// processes may do so at once.
func (s *store) setUp(ctx context.Context, create bool) error {
	ready := false
	attempt := func(k kind) error {
		return s.patiently(ctx, func() error {
			return s.transact(k, func(t *tx) (err error) {
				ready, err = t.setUp(k, create)
				return err
			})
		})
	}
	if err := attempt(reads); err != nil {
		return err
	}
	var mode string
	err := s.patiently(ctx, func() error {
		// With a write-ahead log, NORMAL keeps the database whole whatever happens; a loss of
		// power may take the last commits, which sqlSkipTokens makes up for.
		_, err := s.conn.ExecContext(ctx, "PRAGMA synchronous = NORMAL")
		return cmp.Or(err, s.conn.QueryRowContext(ctx, "PRAGMA journal_mode = WAL").Scan(&mode))
	})
	if err == nil && mode != "wal" {
		err = fmt.Errorf("the file system is not fit for a write-ahead log: journal_mode stays %q", mode)
	}
	if err != nil || ready {
		return err
	}
	return attempt(writes)
}

// setUp tells whether the tables are there, and of this boot. If it writes, it makes them,
// or empties them after a reboot: then all leases are over. What is not ours is an error.
func (t *tx) setUp(k kind, create bool) (ready bool, err error) {
	var application, tables int64
	_, err1 := t.row([]any{&application}, "PRAGMA application_id")
	_, err2 := t.row([]any{&tables}, "SELECT count(*) FROM sqlite_master")
	if err := cmp.Or(err1, err2); err != nil {
		return false, err
	}
	if tables == 0 {
		switch {
		case !create:
			return false, errors.New("the file is empty, and tables are not to be made in it")
		case k == reads:
			return false, nil
		}
		if _, err := t.s.conn.ExecContext(background, schema); err != nil {
			return false, err
		}
		return true, t.exec(sqlFirstBoot, schemaVersion, t.s.boot)
	}
	if application != applicationID {
		return false, errors.New("the file is an SQLite database of another program")
	}
	err = t.check()
	if !errors.Is(err, errOtherBoot) {
		return err == nil, err
	}
	if k == reads {
		return false, nil
	}
	for _, query := range []string{sqlForgetTickets, sqlForgetProcesses, sqlForgetLosses, sqlSkipTokens} {
		if err := t.exec(query); err != nil {
			return false, err
		}
	}
	return true, t.exec(sqlBoot, t.s.boot)
}

// same fails when the file is not the one that was opened: whoever opens the path
// now does not see what is locked here.
func (s *store) same() error {
	st, err := os.Stat(s.path)
	if err == nil && os.SameFile(st, s.opened) {
		return nil
	}
	return errors.Join(fmt.Errorf("%s was removed or replaced while it was in use: restart the programs that use it", s.path), err)
}
