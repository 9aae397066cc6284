package testbed

import (
	"cmp"
	"os"
	"strings"
	"testing"
)

// A server that has to be durable has its data on the disk, so that what it syncs costs what
// it costs elsewhere; that of others is in memory.
func TestFolders(t *testing.T) {
	durable, err := watch.folder(true)
	if err != nil || !strings.HasPrefix(durable, os.TempDir()) {
		t.Errorf("the folder of durable servers is %s: %v", durable, err)
	}
	other, err := watch.folder(false)
	if err != nil || !strings.HasPrefix(other, cmp.Or(memoryFolder(), os.TempDir())) {
		t.Errorf("the folder of other servers is %s: %v", other, err)
	}
	n := &node{opts: options{durable: true}}
	if err := n.reserve(&kind{name: "none"}); err != nil || !strings.HasPrefix(n.dir, durable) {
		t.Errorf("a durable server is in %s: %v", n.dir, err)
	}
	releasePort(n.ports[0])
}
