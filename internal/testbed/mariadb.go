package testbed

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
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
			// By socket: else there are accounts without a password, also for TCP.
			return runMySQL(n, exec.Command(install, "--no-defaults", "--datadir="+data,
				"--auth-root-authentication-method=socket", "--skip-test-db", "--innodb-log-file-size=16M"))
		})
	},
	command: func(n *node) *exec.Cmd {
		return asMySQL(exec.Command(n.bin, append([]string{"--no-defaults", "--innodb-log-file-size=16M"}, mysqlArgs(n)...)...))
	},
	ready: mysqlReady,
	url:   mysqlURL,
}

// MariaDB starts a MariaDB for this test alone, with an empty database. The URL names
// that, and the user root with the only password. The server's process is not root's:
// files for it must be readable for others.
var MariaDB = mariadb.private

// SharedMariaDB returns the MariaDB that all tests of this process share.
var SharedMariaDB = mariadb.share

// mysqlPassword is that of the account root, in all servers of this process. It may do
// anything, files of the server's user included, and every program of this machine
// reaches the port.
var mysqlPassword = rand.Text()

func mysqlURL(addrs string) string {
	return "mysql://root:" + mysqlPassword + "@" + addrs + "/" + mysqlDatabase
}

// mysqlUser is who MariaDB and MySQL run as.
func mysqlUser() string { return serverUser("mysql", "nobody") }

// asMySQL makes cmd run as that user.
func asMySQL(cmd *exec.Cmd) *exec.Cmd {
	_ = asUser(cmd, mysqlUser()) // prepare has found the user
	return cmd
}

// runMySQL runs a command as that user, in the node's folder. Temporary tables are there
// too: a server that starts deletes all that it finds, also those of other servers, which
// crash then.
func runMySQL(n *node, cmd *exec.Cmd) error {
	cmd.Dir, cmd.Env = n.dir, append(os.Environ(), "TMPDIR="+n.dir)
	if err := asUser(cmd, mysqlUser()); err != nil {
		return err
	}
	return run(cmd)
}

// mysqlArgs are what MariaDB and MySQL have in common.
func mysqlArgs(n *node) []string {
	data := filepath.Join(n.dir, "data")
	args := []string{
		"--datadir=" + data, "--tmpdir=" + n.dir, "--socket=" + n.dir + "/s.sock", "--pid-file=" + n.dir + "/pid",
		"--port=" + strconv.Itoa(n.ports[0]), "--bind-address=127.0.0.1", "--init-file=" + n.dir + "/init.sql",
		"--max-connections=500", "--innodb-buffer-pool-size=64M", "--performance-schema=OFF",
	}
	if !n.opts.durable {
		// Commits still reach the operating system, so a killed server keeps them.
		args = append(args, "--innodb-flush-log-at-trx-commit=2", "--sync-binlog=0", "--innodb-doublewrite=OFF")
	}
	return append(args, n.opts.args...)
}

// prepareMySQL has install make a data folder, whose accounts let nobody in by TCP.
// Each server process's password is set by its init file.
func prepareMySQL(name string, n *node, install func(data string) error) error {
	init := filepath.Join(n.dir, "init.sql")
	sql := "CREATE DATABASE IF NOT EXISTS " + mysqlDatabase + ";\n" +
		"ALTER USER root@localhost IDENTIFIED BY '" + mysqlPassword + "';\n"
	if err := os.WriteFile(init, []byte(sql), 0o600); err != nil {
		return err
	}
	for _, path := range []string{n.dir, init} {
		if err := giveTo(path, mysqlUser()); err != nil {
			return err
		}
	}
	return fromTemplate(name+"-of-"+mysqlUser(), n.bin, filepath.Join(n.dir, "data"), install)
}

// mysqlReady waits for the greeting that the server opens with. The port is
// opened when it is ready, and not before.
func mysqlReady(ctx context.Context, addr string, _ options) error {
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
