// Package marked is the type of the errors that driver.Unavailable and driver.NoTicket have marked.
package marked

// Error wraps a sentinel beside an error, without changing its text.
type Error struct{ Err, Sentinel error }

func (e *Error) Error() string   { return e.Err.Error() }
func (e *Error) Unwrap() []error { return []error{e.Err, e.Sentinel} }
