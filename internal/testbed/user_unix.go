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

// asUser makes cmd run as the named user where this process is root's, since
// some servers refuse to run as root.
func asUser(cmd *exec.Cmd, name string) error {
	uid, gid, err := userIDs(name)
	if err != nil || uid < 0 {
		return err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}}
	return nil
}

// giveTo makes the named user the owner of dir, where this process is root's.
func giveTo(dir, name string) error {
	uid, gid, err := userIDs(name)
	if err != nil || uid < 0 {
		return err
	}
	return os.Chown(dir, uid, gid)
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
