package command

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"syscall"
)

// signalError is the cause with which the context of a verb ends.
type signalError struct{ sig syscall.Signal }

func (e signalError) Error() string { return "ended by signal: " + e.sig.String() }

func isSignal(err error) bool {
	var s signalError
	return errors.As(err, &s)
}

// ending are the signals that end a verb.
var ending = []os.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT}

// withSignals returns a context that ends at the first of the ending signals.
// A second one ends the process, as if it had not been caught. Signals that the
// parent has this process ignore (nohup, a background job of a shell) stay
// ignored.
func withSignals(parent context.Context) (_ context.Context, stop func()) {
	ctx, cancel := context.WithCancelCause(parent)
	ch := make(chan os.Signal, 1)
	notify(ch, ending...)
	done := make(chan struct{})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		select {
		case sig := <-ch:
			signal.Stop(ch)
			cancel(signalError{sig.(syscall.Signal)})
		case <-done:
			signal.Stop(ch)
			select { // a signal that came until then is not lost
			case sig := <-ch:
				cancel(signalError{sig.(syscall.Signal)})
			default:
			}
		}
	}()
	return ctx, func() {
		select {
		case <-done:
		default:
			close(done)
		}
		<-ended
	}
}

// ownSignals ends the watch for the ending signals. The verb must have called notify
// for them before. If a signal came earlier, the context of the verb has ended.
func (a *app) ownSignals() { a.handOff() }

// notify is signal.Notify without the signals that are ignored.
func notify(ch chan<- os.Signal, sigs ...os.Signal) {
	for _, s := range sigs {
		if !signal.Ignored(s) {
			signal.Notify(ch, s)
		}
	}
}
