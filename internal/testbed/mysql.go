package testbed

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// mysql is Oracle's server. Debian has it in sid only, so it is unpacked there
// where scripts/install-servers.sh mysql puts it, and runs with its own
// libraries. It is optional: no test is failed for want of it, unless
// LOCKER_TEST_REQUIRE=all.
var mysql = &kind{
	name:     "mysql",
	scheme:   "mysql",
	ports:    1,
	optional: true,
	find:     findMySQL,
	prepare: func(n *node) error {
		return prepareMySQL("mysql", n, func(data string) error {
			// The password that it makes up and logs is for no one: the init file sets another.
			return runMySQL(n, mysqlCommand(n.bin, "--initialize", "--datadir="+data, "--innodb-redo-log-capacity=16M"))
		})
	},
	command: func(n *node) *exec.Cmd {
		args := append([]string{"--mysqlx=OFF", "--secure-file-priv=", "--innodb-redo-log-capacity=16M"}, mysqlArgs(n)...)
		return asMySQL(mysqlCommand(n.bin, args...))
	},
	ready: mysqlReady,
	url:   mysqlURL,
}

// mysqlTree is the unpacked packages' root. Root's own cache is no place for it: the
// server, which runs as another user, may not pass through root's home.
func mysqlTree() string {
	if os.Getuid() == 0 {
		return "/var/cache/locker/mysql"
	}
	return cacheDir("mysql")
}

func findMySQL() (string, error) {
	path, err := lookup([]string{"mysqld"}, filepath.Join(mysqlTree(), "usr/sbin"), "/usr/sbin")
	if err != nil {
		return "", err
	}
	// MariaDB's packages have a mysqld of that name.
	if target, err := filepath.EvalSymlinks(path); err == nil && strings.Contains(filepath.Base(target), "mariadb") {
		return "", errors.New("mysqld on this machine is MariaDB")
	}
	return path, nil
}

// mysqlCommand runs mysqld, by the loader of its own tree if it is there.
func mysqlCommand(bin string, args ...string) *exec.Cmd {
	root := mysqlTree()
	if !strings.HasPrefix(bin, root+"/") {
		return exec.Command(bin, append([]string{"--no-defaults"}, args...)...)
	}
	triplet, loader := "x86_64-linux-gnu", "ld-linux-x86-64.so.2"
	if runtime.GOARCH == "arm64" {
		triplet, loader = "aarch64-linux-gnu", "ld-linux-aarch64.so.1"
	}
	libs := filepath.Join(root, "usr/lib", triplet)
	return exec.Command(filepath.Join(libs, loader), append([]string{
		"--library-path", libs + ":" + filepath.Join(root, "usr/lib/mysql/private"), bin, "--no-defaults",
		"--basedir=" + filepath.Join(root, "usr"), "--lc-messages-dir=" + filepath.Join(root, "usr/share/mysql"),
		"--plugin-dir=" + filepath.Join(root, "usr/lib/mysql/plugin"),
	}, args...)...)
}

// MySQL starts Oracle's MySQL for this test alone, set up as [MariaDB] is.
var MySQL = mysql.private

// SharedMySQL returns the MySQL that all tests of this process share.
var SharedMySQL = mysql.share
