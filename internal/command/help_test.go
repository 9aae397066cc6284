package command_test

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
)

// Every verb has a summary, and examples that name it.
func TestHelp(t *testing.T) {
	t.Parallel()
	root := command.New(command.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr})
	for _, cmd := range root.Commands() {
		if cmd.Short == "" {
			t.Errorf("%s has no summary", cmd.CommandPath())
		}
		if cmd.Runnable() && !cmd.Hidden && !strings.Contains(cmd.Example, cmd.CommandPath()) {
			t.Errorf("%s has no example", cmd.CommandPath())
		}
		checkWidth(t, cmd)
	}
	r := commandtest.Command(t).Run()
	if help := commandtest.Command(t, "help").Run(); r.Code != 0 || r.Out == "" || r.Out != help.Out {
		t.Errorf("%v\n%v", r, help)
	}
}

func checkWidth(t *testing.T, cmd *cobra.Command) {
	for line := range strings.Lines(cmd.Long + "\n" + cmd.Example) {
		if len([]rune(line)) > 101 {
			t.Errorf("%s: a line of help has %d columns: %s", cmd.CommandPath(), len([]rune(line)), line)
		}
	}
}

// Help lists all exit codes, and no others.
func TestHelpExitCodes(t *testing.T) {
	t.Parallel()
	r := commandtest.Command(t, "help", "exit-codes").Run()
	for _, code := range []int{
		command.ExitOK, command.ExitFailure, command.ExitUsage, command.ExitUnavailable, command.ExitBusy,
		command.ExitRefused, command.ExitConfig, command.ExitLost, command.ExitNoExec, command.ExitNoCommand,
	} {
		if !regexp.MustCompile(fmt.Sprintf(`(?m)^ *%d  `, code)).MatchString(r.Out) {
			t.Errorf("%d is not listed: %v", code, r)
		}
	}
	r = commandtest.Command(t, "help", "environment").Run()
	for _, name := range []string{"LOCKER_URL ", "LOCKER_URL_FILE ", "LOCKER_CONSOLE_TOKEN ", "LOCKER_CONSOLE_READ_TOKEN ", "XDG_STATE_HOME ", "NO_COLOR ", "TERM "} {
		if !strings.Contains(r.Out, name) {
			t.Errorf("%s is not explained: %v", name, r)
		}
	}
}

// The shell completes the command itself.
func TestCompletion(t *testing.T) {
	t.Parallel()
	if r := commandtest.Command(t, "__complete", "run", "a", "--", "pg").Run(); !strings.HasPrefix(r.Out, ":0\n") {
		t.Error(r)
	}
	if r := commandtest.Command(t, "__complete", "elect", "--on-success", "").Run(); !strings.HasPrefix(r.Out, "restart\nstep-down\nstop\n") {
		t.Error(r)
	}
	for _, sh := range []string{"bash", "zsh", "fish", "powershell"} {
		if r := commandtest.Command(t, "completion", sh).Run(); r.Code != 0 || !strings.Contains(r.Out, "__complete") {
			t.Errorf("%s: exit code %d, %s", sh, r.Code, r.ErrOut)
		}
	}
}
