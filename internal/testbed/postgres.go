package testbed

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const postgresUser = "postgres"

var postgres = &kind{
	name:    "postgres",
	scheme:  "postgres",
	ports:   1,
	find:    findPostgres,
	prepare: preparePostgres,
	command: func(n *node) *exec.Cmd {
		data := filepath.Join(n.dir, "data")
		args := []string{
			"-D", data, "-p", strconv.Itoa(n.ports[0]), "-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=" + data, "-c", "max_connections=300", "-c", "shared_buffers=32MB",
			"-c", "dynamic_shared_memory_type=mmap", // in the data folder: a killed server leaves nothing in /dev/shm
		}
		if !n.opts.durable {
			// Commits still reach the operating system, so a killed server keeps them.
			args = append(args, "-c", "fsync=off", "-c", "full_page_writes=off")
		}
		cmd := exec.Command(n.bin, append(args, n.opts.args...)...)
		_ = asUser(cmd, postgresUser) // prepare has found the user
		return cmd
	},
	killed: func(n *node) { freeSharedMemory(filepath.Join(n.dir, "data")) },
	ready:  postgresReady,
	url: func(addrs string) string {
		return "postgres://" + postgresUser + "@" + addrs + "/postgres?sslmode=disable"
	},
}

// findPostgres takes the newest that Debian has installed: only there are
// initdb and the server sure to be of one version.
func findPostgres() (string, error) {
	list, _ := filepath.Glob("/usr/lib/postgresql/*/bin/postgres")
	version := func(path string) int {
		n, _ := strconv.Atoi(strings.Split(path, "/")[4])
		return n
	}
	slices.SortFunc(list, func(a, b string) int { return version(b) - version(a) })
	other, none := lookup([]string{"postgres"})
	if none == nil {
		list = append(list, other)
	}
	for _, path := range list {
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), "initdb")); err == nil {
			return path, nil
		}
	}
	return "", errors.Join(none, errors.New("no PostgreSQL with its initdb beside it"))
}

func preparePostgres(n *node) error {
	if err := os.Chmod(n.dir, 0o711); err != nil { // its user passes through
		return err
	}
	return fromTemplate("postgres", n.bin, filepath.Join(n.dir, "data"), func(dir string) error {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
		if err := giveTo(dir, postgresUser); err != nil {
			return err
		}
		cmd := exec.Command(filepath.Join(filepath.Dir(n.bin), "initdb"), "-D", dir, "-U", postgresUser,
			"-A", "trust", "-E", "UTF8", "--locale=C.UTF-8", "--no-sync")
		cmd.Dir = dir
		if err := asUser(cmd, postgresUser); err != nil {
			return err
		}
		return run(cmd)
	})
}

// freeSharedMemory removes the System V segment that a killed server leaves
// behind, and of which the kernel allows some thousands. Its number is
// the second in the seventh line of postmaster.pid.
func freeSharedMemory(data string) {
	b, err := os.ReadFile(filepath.Join(data, "postmaster.pid"))
	if err != nil {
		return
	}
	lines := strings.Split(string(b), "\n")
	if len(lines) < 7 {
		return
	}
	if words := strings.Fields(lines[6]); len(words) == 2 {
		_ = run(exec.Command("ipcrm", "-m", words[1])) // it may be gone
	}
}

// Postgres starts a PostgreSQL for this test alone, with a superuser postgres
// that needs no password.
var Postgres = postgres.private

// SharedPostgres returns the PostgreSQL that all tests of this process share.
var SharedPostgres = postgres.share

// postgresReady logs in and leaves, and returns what the server says against it. A request for
// a password that only the test knows will do: a server that starts, or recovers, refuses before.
func postgresReady(ctx context.Context, addr string, _ options) error {
	// Protocol 3.0: length, version, then pairs of strings, all ended by zeros; and a good-bye.
	body := "\x00\x03\x00\x00user\x00" + postgresUser + "\x00database\x00postgres\x00\x00"
	length := binary.BigEndian.AppendUint32(nil, uint32(4+len(body)))
	answer, err := ask(ctx, addr, string(length)+body+"X\x00\x00\x00\x04")
	const letIn, ready = "R\x00\x00\x00\x08\x00\x00\x00\x00", "Z\x00\x00\x00\x05I"
	if !strings.HasPrefix(answer, "R") || strings.HasPrefix(answer, letIn) && !strings.Contains(answer, ready) {
		return errors.Join(err, fmt.Errorf("it answers %q", answer))
	}
	return nil
}
