//go:build linux

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lockerproject/locker/internal/testbed"
)

// diskSize bounds what a store may write in a run.
const diskSize = 4 << 30

// A disk is a small file system in memory, in which the store keeps its data.
type disk struct{ path string }

// makeDisk has the testbed use a file system of its own, until b ends. The error is why
// there is none.
func makeDisk(b *testbed.Program) (*disk, error) {
	shared := filepath.Join(os.TempDir(), "locker-testbed-ports")
	path, err := os.MkdirTemp("", "locker-soak-")
	if err != nil {
		return nil, err
	}
	d := &disk{path}
	if err := syscall.Mount("tmpfs", path, "tmpfs", 0, fmt.Sprintf("mode=1777,size=%d", int64(diskSize))); err != nil {
		_ = os.Remove(path)
		return nil, fmt.Errorf("mount a tmpfs: %w", err)
	}
	b.Cleanup(func() {
		_ = syscall.Unmount(path, syscall.MNT_DETACH)
		_ = os.Remove(path)
	})
	// All test processes of the machine agree on ports there.
	if err := os.MkdirAll(shared, 0o777); err != nil {
		return nil, err
	}
	if err := os.Symlink(shared, filepath.Join(path, filepath.Base(shared))); err != nil {
		return nil, err
	}
	return d, os.Setenv("TMPDIR", path)
}

// fill leaves no space, until free.
func (d *disk) fill() error {
	var st syscall.Statfs_t
	if err := syscall.Statfs(d.path, &st); err != nil {
		return err
	}
	return d.resize(max(int64(st.Blocks-st.Bfree), 1) * st.Bsize) // 0 means no limit
}

func (d *disk) free() error { return d.resize(diskSize) }

func (d *disk) resize(size int64) error {
	if err := syscall.Mount("tmpfs", d.path, "tmpfs", syscall.MS_REMOUNT, fmt.Sprintf("size=%d", size)); err != nil {
		return fmt.Errorf("resize %s: %w", d.path, err)
	}
	return nil
}
