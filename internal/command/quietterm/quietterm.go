// Package quietterm keeps the program from asking the terminal anything while it
// starts. Bubble Tea v1 asks for the colour of the background when it is imported, for
// every verb. Over a connection that does not pass the answer on, each start would
// take five seconds, and the shell would read a late answer. Bubble Tea asks a dumb
// terminal nothing.
//
// It works because packages are initialized in the order of their paths, as
// far as their imports allow (The Go Programming Language Specification, "Program
// initialization"): this one imports nothing but os, and comes before
// github.com/muesli/termenv, which Bubble Tea needs. A test of package command
// checks that.
package quietterm

import "os"

const variable = "TERM"

var before, set = os.LookupEnv(variable)

func init() { _ = os.Setenv(variable, "dumb") }

// Restore gives the environment its terminal back. Call it from the init function of
// a package that imports Bubble Tea.
func Restore() {
	if set {
		_ = os.Setenv(variable, before)
	} else {
		_ = os.Unsetenv(variable)
	}
}
