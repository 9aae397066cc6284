// Package marked is the type of the errors that have a sentinel as a mark, as those of driver.Unavailable
// and driver.NoTicket.
package marked

// Error wraps a sentinel beside an error, without changing its text.
type Error struct{ Err, Sentinel error }

func (e *Error) Error() string   { return e.Err.Error() }
func (e *Error) Unwrap() []error { return []error{e.Err, e.Sentinel} }
