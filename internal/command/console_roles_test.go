package command_test

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

// The second token is only for those who look, wherever it comes from.
func TestConsoleReadToken(t *testing.T) {
	t.Parallel()
	const secret, read = "a token of our own", "a token of readers"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(read+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	args := []string{"console", "--json", "--listen", "127.0.0.1:0", "--url", "memory://", "--allow-break"}
	for _, c := range []*commandtest.Cmd{
		commandtest.Command(t, append(args, "--read-token-file", file)...).With("LOCKER_CONSOLE_TOKEN="+secret, "LOCKER_CONSOLE_READ_TOKEN=another one, not used"),
		commandtest.Command(t, args...).With("LOCKER_CONSOLE_TOKEN="+secret, "LOCKER_CONSOLE_READ_TOKEN="+read),
	} {
		cmd, says := startConsole(t, c)
		for token, want := range map[string]string{secret: `"allowBreak":true`, read: `"allowBreak":false`} {
			client := browse(t)
			if at := loginAt(t, client, says.URL, token); at != "/" {
				t.Errorf("with the token %q one gets to %s", token, at)
			}
			streamUntil(t, client, says.URL, want)
		}
		cmd.Signal(syscall.SIGINT)
		if r := cmd.Wait(); r.Code != 0 || strings.Contains(r.Out+r.ErrOut, read) {
			t.Error(r)
		}
	}
	for _, env := range []string{"LOCKER_CONSOLE_READ_TOKEN=short", "LOCKER_CONSOLE_READ_TOKEN=", "LOCKER_CONSOLE_READ_TOKEN=" + secret} {
		r := commandtest.Command(t, args...).With("LOCKER_CONSOLE_TOKEN="+secret, env).Run()
		if r.Code != command.ExitUsage || !strings.Contains(r.ErrOut, "those who only look") && !strings.Contains(r.ErrOut, "is empty") {
			t.Errorf("%s: %v", env, r)
		}
	}
}
