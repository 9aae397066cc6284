package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// mysqlDatabase is made at the start of each MariaDB and MySQL.
const mysqlDatabase = "locker"

var mariadb = &kind{
	name:   "mariadb",
	scheme: "mysql",
	ports:  1,
	find:   func() (string, error) { return lookup([]string{"mariadbd"}, "/usr/sbin", "/usr/bin") },
	prepare: func(n *node) error {
		return prepareMySQL("mariadb", n, func(data string) error {
			install, err := lookup([]string{"mariadb-install-db"}, "/usr/bin")
			if err != nil {
				return err
			}
			return run(exec.Command(install, append([]string{
				"--no-defaults", "--datadir=" + data, "--auth-root-authentication-method=normal", "--skip-test-db",
				"--innodb-log-file-size=16M",
			}, asRoot()...)...))
		})
	},
	command: func(n *node) *exec.Cmd {
		return exec.Command(n.bin, append([]string{"--no-defaults", "--innodb-log-file-size=16M"}, mysqlArgs(n)...)...)
	},
	ready: mysqlReady,
	url:   mysqlURL,
	image: &image{
		env:  []string{"MARIADB_USER=root", "MARIADB_PASSWORD=", "MARIADB_DATABASE=" + mysqlDatabase},
		args: []string{"--max-connections=500"},
	},
}

// MariaDB starts a MariaDB for this test alone, with a user root that needs no
// password and an empty database, which the URL names.
func MariaDB(tb testing.TB, opts ...Option) *Server {
	tb.Helper()
	return mariadb.private(tb, opts...)
}

// SharedMariaDB returns the MariaDB that all tests of this process share.
func SharedMariaDB(tb testing.TB) *Server {
	tb.Helper()
	return mariadb.share(tb)
}

func mysqlURL(addrs string) string { return "mysql://root@" + addrs + "/" + mysqlDatabase }

// asRoot is for a process of root's: these servers insist on being told.
func asRoot() []string {
	if os.Getuid() == 0 {
		return []string{"--user=root"}
	}
	return nil
}

// mysqlArgs are what MariaDB and MySQL have in common.
func mysqlArgs(n *node) []string {
	data := filepath.Join(n.dir, "data")
	args := append(asRoot(),
		"--datadir="+data, "--socket="+n.dir+"/s.sock", "--pid-file="+n.dir+"/pid",
		"--port="+strconv.Itoa(n.ports[0]), "--bind-address=127.0.0.1", "--init-file="+n.dir+"/init.sql",
		"--max-connections=500", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
	)
	if !n.opts.durable {
		// Commits still reach the operating system, so a killed server keeps them.
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-doublewrite=OFF")
	}
	return append(args, n.opts.args...)
}

func prepareMySQL(name string, n *node, install func(data string) error) error {
	sql := "CREATE DATABASE IF NOT EXISTS " + mysqlDatabase + ";\n"
	if err := os.WriteFile(filepath.Join(n.dir, "init.sql"), []byte(sql), 0o600); err != nil {
		return err
	}
	return fromTemplate(name, n.bin, filepath.Join(n.dir, "data"), install)
}

// mysqlReady waits for the greeting that the server opens with. The port is
// opened when it is ready, and not before.
func mysqlReady(ctx context.Context, addr string) error {
	c, err := dialContext(ctx, addr)
	if err != nil {
		return err
	}
	defer c.Close()
	var head [5]byte // three bytes of length, a number, the protocol's version
	if _, err := io.ReadFull(c, head[:]); err != nil {
		return err
	}
	switch head[4] {
	case 10:
		return nil
	case 0xff:
		return errors.New("it answers with an error")
	}
	return fmt.Errorf("it speaks protocol %d", head[4])
}
