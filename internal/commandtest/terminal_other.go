//go:build !linux

package commandtest

import "testing"

// Terminal is a pseudo-terminal: see terminal_linux.go.
type Terminal struct{}

// NewTerminal skips the test: here it is known only how Linux makes terminals.
func NewTerminal(tb testing.TB) *Terminal {
	tb.Helper()
	tb.Skip("no pseudo-terminals here")
	return nil
}

// Attach does nothing: there is no Terminal.
func (t *Terminal) Attach(c *Cmd) *Cmd { return c }

// Type does nothing.
func (t *Terminal) Type(string) {}

// WaitFor returns nothing.
func (t *Terminal) WaitFor(string) string { return "" }

// Shown returns nothing.
func (t *Terminal) Shown() string { return "" }

// Hangup does nothing.
func (t *Terminal) Hangup() {}
