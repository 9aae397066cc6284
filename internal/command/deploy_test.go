package command_test

import (
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/lockerproject/locker/internal/commandtest"
)

var (
	execStart   = regexp.MustCompile(`(?m)^ExecStart=/usr/local/bin/locker (run .*) -- \S+$`)
	yamlCommand = regexp.MustCompile(`(?m)^ *command: \[locker, (run, .*), --\]$`)
)

// TestDeploy runs what the files of deploy run, twice: the second one is not the first in its period.
func TestDeploy(t *testing.T) {
	t.Parallel()
	for file, line := range map[string]*regexp.Regexp{
		"../../deploy/systemd/hourly-report.service": execStart,
		"../../deploy/kubernetes/cronjob.yaml":       yamlCommand,
	} {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		m := line.FindStringSubmatch(string(text))
		if m == nil {
			t.Fatalf("%s runs no locker", file)
		}
		args := append(strings.Fields(strings.NewReplacer(",", "", `"`, "").Replace(m[1])), "--", "echo", "ran")
		state := "XDG_STATE_HOME=" + t.TempDir()
		for i, want := range []string{"ran\n", ""} {
			if r := commandtest.Command(t, args...).With(state).Run(); r.Code != 0 || r.Out != want {
				t.Errorf("%s, run %d: want %q in %v", file, i+1, want, r)
			}
		}
	}
}
