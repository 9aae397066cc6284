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
