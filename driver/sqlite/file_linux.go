package sqlite

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// networked are the file systems that several machines may share, whose locks and
// shared memory SQLite must not rely on.
var networked = map[int64]string{
	0x6969: "NFS", 0x517b: "SMB", 0xff534d42: "CIFS", 0xfe534d42: "SMB2", 0x01021997: "9P",
	0x00c36400: "Ceph", 0x5346414f: "AFS", 0x6b414653: "AFS", 0x0bd00bd0: "Lustre",
	0x01161970: "GFS2", 0x7461636f: "OCFS2", 0x47504653: "GPFS", 0x73757245: "Coda",
}

// checkPlace refuses a file that SQLite could not keep whole.
func checkPlace(path string) error {
	var fs unix.Statfs_t
	if err := unix.Statfs(filepath.Dir(path), &fs); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	if name, ok := networked[int64(fs.Type)&0xffffffff]; ok { //nolint:unconvert // its type differs between machines
		return fmt.Errorf("%s is on a network file system (%s): want a disk of this machine", path, name)
	}
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err == nil && st.Nlink > 1 {
		return fmt.Errorf("%s has %d hard links: programs that open it under different names would not see each other's locks", path, st.Nlink)
	}
	return nil
}
