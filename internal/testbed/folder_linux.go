package testbed

import (
	"os"
	"syscall"
)

// inMemory is where Linux keeps files in memory.
const inMemory = "/dev/shm"

// memoryFolder returns a folder whose files are in memory, or "" if there is not enough
// room or TMPDIR names another one. A server that syncs each write stands still while a
// busy disk writes what a compiler left, often for longer than a waiter's ticket lives. A
// killed process loses nothing in memory either: what only a crash of the machine loses is
// not tested here.
func memoryFolder() string {
	const tmpfs, room = 0x01021994, 4 << 30 // the type is in linux/magic.h
	var s syscall.Statfs_t
	if os.Getenv("TMPDIR") != "" || syscall.Statfs(inMemory, &s) != nil {
		return ""
	}
	if s.Type != tmpfs || s.Bavail*uint64(s.Bsize) < room { //nolint:gosec // a size is not negative
		return ""
	}
	return inMemory
}
