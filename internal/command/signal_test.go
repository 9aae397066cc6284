package command

import (
	"os"
	"os/signal"
	"syscall"
	"testing"
)

// A signal that comes while a verb takes the signals over itself is not lost.
func TestSignalAtTheHandOver(t *testing.T) {
	seen := make(chan os.Signal, 1)
	signal.Notify(seen, syscall.SIGHUP)
	defer signal.Stop(seen)
	self, err := os.FindProcess(os.Getpid())
	if err != nil {
		t.Fatal(err)
	}
	for i := range 200 {
		ctx, stop := withSignals(t.Context())
		if err := self.Signal(syscall.SIGHUP); err != nil {
			t.Fatal(err)
		}
		<-seen
		stop()
		if ctx.Err() == nil {
			t.Fatalf("signal %d was lost", i)
		}
	}
}

// A signal that came too late for one run of the command does not reach the next run,
// which it would end.
func TestElectDropsLateSignals(t *testing.T) {
	e := &elect{app: &app{}, signals: &forwarded{ch: make(chan os.Signal, 16)}}
	e.begin()
	e.signalled(syscall.SIGHUP, e.signals.ch)
	if len(e.signals.ch) != 1 {
		t.Fatal("the command that runs does not get the signal")
	}
	e.end()
	if !e.begin() || len(e.signals.ch) != 0 {
		t.Error("the next command gets the signal")
	}
}
