//go:build unix

package testbed

import (
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"syscall"
)

// serverUser names who a server runs as that is not to be root's: the first of some
// users that exists where this process is root's, and this process's user elsewhere.
func serverUser(names ...string) string {
	if uid := os.Getuid(); uid != 0 {
		return strconv.Itoa(uid)
	}
	for _, name := range names {
		if _, err := user.Lookup(name); err == nil {
			return name
		}
	}
	return names[len(names)-1] // which userIDs will miss
}

// asUser makes cmd run as the named user where this process is root's, since
// some servers refuse to run as root, and the others should not.
func asUser(cmd *exec.Cmd, name string) error {
	uid, gid, err := userIDs(name)
	if err != nil || uid < 0 {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

// giveTo makes the named user the owner of a file or a folder, where this process is
// root's.
func giveTo(path, name string) error {
	uid, gid, err := userIDs(name)
	if err != nil || uid < 0 {
		return err
	}
	return os.Chown(path, uid, gid)
}

// userIDs returns -1 where this process is not root's.
func userIDs(name string) (uid, gid int, err error) {
	if os.Getuid() != 0 {
		return -1, -1, nil
	}
	u, err := user.Lookup(name)
	if err != nil {
		return -1, -1, fmt.Errorf("root cannot run it, and %w", err)
	}
	if uid, err = strconv.Atoi(u.Uid); err != nil {
		return -1, -1, err
	}
	gid, err = strconv.Atoi(u.Gid)
	return uid, gid, err
}
