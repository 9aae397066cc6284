//go:build unix

package command

import (
	"os"
	"path/filepath"
	"testing"
)

// A command is not started under a lock that is lost already.
func TestProgramNeedsTheLock(t *testing.T) {
	file := filepath.Join(t.TempDir(), "started")
	p := &program{args: []string{"sh", "-c", "touch " + file}, path: "/bin/sh"}
	code, err := p.run(t.Context(), &app{}, &forwarded{}, 0, nil, func() bool { return false })
	if _, started := os.Stat(file); started == nil || code != 0 || err != nil {
		t.Errorf("started: %t, code %d, %v", started == nil, code, err)
	}
}
