package command

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/lockerproject/locker"
)

// Exit codes. The verbs that run a command exit with its code. So our own codes,
// except for 1, are those of sysexits.h and of shells, which few others use.
const (
	ExitOK           = 0
	ExitFailure      = 1   // any other failure
	ExitUsage        = 64  // EX_USAGE
	ExitUnavailable  = 69  // EX_UNAVAILABLE
	ExitBusy         = 75  // EX_TEMPFAIL
	ExitRefused      = 77  // EX_NOPERM
	ExitConfig       = 78  // EX_CONFIG
	ExitLost         = 79  // beside those of sysexits.h
	ExitNoExec       = 126 // as shells
	ExitNoCommand    = 127 // as shells
	exitSignalOffset = 128 // as shells
)

// exitCodes is the text of locker help exit-codes.
const exitCodes = `    0  success
    1  a failure that is none of the others
   64  wrong usage: arguments, flags, an invalid name, or something that this store
       cannot do
   69  the store is unavailable: it did not answer, or refused everybody
   75  busy: somebody else has the lock (run --on-busy sets another code)
   77  the store refused: wrong user or password, missing rights, or another error
       of its own
   78  wrong configuration: the URL of the store
   79  the lock was lost before the command had ended: it has been ended or, if
       the store reported the loss only at the release, has run without the lock
  126  the command cannot be executed
  127  the command was not found
128+n  ended by signal n: the command or, before it was started, locker

locker run and locker elect exit with the code of their command if it has ended by
itself. Where locker run exits with 79, locker elect campaigns again. locker conformance
exits with 1 if a case has failed.`

// exitError gives an error its exit code and, if there is one, the next thing to
// try.
type exitError struct {
	code int
	err  error
	try  string
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

// exit gives err an exit code. try, which may be empty, names the next thing to
// try: a command, a setting. An err of nil ends the process with the code and
// prints nothing.
func exit(code int, err error, try string) error {
	if err == nil {
		err = errSilent
	}
	return &exitError{code: code, err: err, try: try}
}

// errSilent is the error of a verb that has printed everything already.
var errSilent = errors.New("")

// usage marks err as one of the arguments and flags.
func usage(err error) error { return exit(ExitUsage, err, "") }

// configuration marks err as one of the store's URL.
func configuration(err error) error { return exit(ExitConfig, err, "") }

// exitCode maps an error to the code of the process.
func exitCode(err error) int {
	var (
		coded  *exitError
		signal signalError
		store  *locker.Error
	)
	switch {
	case err == nil:
		return ExitOK
	case errors.As(err, &coded):
		return coded.code
	case errors.As(err, &signal):
		return exitSignalOffset + int(signal.sig)
	case errors.Is(err, locker.ErrInvalidName), errors.Is(err, locker.ErrInvalidOption), errors.Is(err, locker.ErrUnsupported):
		return ExitUsage
	case errors.Is(err, locker.ErrUnavailable): // before ErrNotAcquired: see the package comment of locker
		return ExitUnavailable
	case errors.Is(err, locker.ErrNotAcquired):
		return ExitBusy
	case errors.Is(err, locker.ErrLost):
		return ExitLost
	case errors.As(err, &store):
		return ExitRefused
	default:
		return ExitFailure
	}
}

// next is the next thing to try after err.
func next(verb *cobra.Command, err error) string {
	var (
		coded *exitError
		store *locker.Error
	)
	if errors.As(err, &coded) && coded.try != "" {
		return coded.try
	}
	switch exitCode(err) {
	case ExitUsage:
		return verb.CommandPath() + " --help"
	case ExitUnavailable:
		return "is the store up, and are the address, the port and the scheme of its URL right (TLS or not)? locker ping asks it"
	case ExitBusy:
		name := "NAME"
		if errors.As(err, &store) && store.Name != "" {
			name = nameWord(store.Name)
		}
		return "locker inspect " + name + " shows who has it; --wait sets how long to wait for it"
	case ExitRefused:
		return "user, password and rights of the store's URL, if the message names nothing else; locker ping checks them"
	case ExitConfig:
		return "--url or " + envURL + ", such as redis://localhost:6379; locker help environment"
	default:
		return ""
	}
}

// report prints err, with the next thing to try, and returns the exit code.
func (a *app) report(verb *cobra.Command, err error) int {
	code := exitCode(err)
	if err == nil || errors.Is(err, errSilent) || isSignal(err) {
		return code
	}
	text := textOf(err)
	try := next(verb, err)
	if a.json {
		_ = json.NewEncoder(a.Err).Encode(struct {
			Error string `json:"error"`
			Exit  int    `json:"exit"`
			Try   string `json:"try,omitempty"`
		}{text, code, try})
		return code
	}
	fmt.Fprintln(a.Err, "locker:", printable(text))
	if try != "" {
		fmt.Fprintln(a.Err, "   try:", printable(try))
	}
	return code
}

// textOf is the text of an error on one line, without the name of the program, which
// stands before all that locker says.
func textOf(err error) string { return strings.TrimPrefix(oneLine(err.Error()), "locker: ") }

// oneLine joins the lines of a text: those of errors.Join, and cobra's proposals.
func oneLine(text string) string {
	var lines []string
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line != "" {
			lines = append(lines, line)
		}
	}
	return strings.ReplaceAll(strings.Join(lines, "; "), ":; ", ": ")
}

func helpExitCodes() *cobra.Command {
	return &cobra.Command{Use: "exit-codes", Short: "The exit codes of locker", Long: exitCodes}
}
