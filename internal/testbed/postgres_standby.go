package testbed

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// PostgresStandby starts a PostgreSQL, Members[0], and a standby that streams
// from it, Members[1]: a copy that follows, asynchronously unless the test has
// the first wait for it. The test promotes the standby itself (pg_promote).
// The ensemble's URL names both.
func PostgresStandby(tb testing.TB, opts ...Option) *Ensemble {
	tb.Helper()
	var primary *node
	k := *postgres
	k.prepare = func(n *node) error {
		if n == primary {
			return preparePostgres(n)
		}
		return copyPostgres(n, primary.ports[0])
	}
	e := newEnsemble(tb, &k, 2, opts, func(nodes []*node) { primary = nodes[0] })
	for _, s := range e.Members { // the second is copied from the first while that runs
		s.begin()
		s.Wait()
	}
	return e
}

// copyPostgres fills the data folder of a standby from the server on port,
// which has to run.
func copyPostgres(n *node, port int) error {
	if err := os.Chmod(n.dir, 0o711); err != nil { // its user passes through
		return err
	}
	data := filepath.Join(n.dir, "data")
	if err := os.Mkdir(data, 0o700); err != nil {
		return err
	}
	if err := giveTo(data, postgresUser); err != nil {
		return err
	}
	cmd := exec.Command(filepath.Join(filepath.Dir(n.bin), "pg_basebackup"), "-h", "127.0.0.1", "-p", strconv.Itoa(port),
		"-U", postgresUser, "-D", data, "--write-recovery-conf", "--checkpoint=fast", "--no-sync")
	cmd.Dir = data
	if err := asUser(cmd, postgresUser); err != nil {
		return err
	}
	return run(cmd)
}
