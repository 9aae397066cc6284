//go:build unix

package link

import (
	"net"
	"os/exec"
	"sync"
	"testing"
	"time"
)

// TestRefuseBesideStartingProcesses: a process that is being started has the
// listening socket too, until it has become another program.
func TestRefuseBesideStartingProcesses(t *testing.T) {
	end := make(chan struct{})
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for {
				select {
				case <-end:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer wg.Wait()
	defer close(end)
	p := NewProxy(t, newEcho(t).addr)
	for deadline := time.Now().Add(time.Second); time.Now().Before(deadline); p.Heal() {
		p.Refuse()
		if c, err := net.Dial("tcp", p.Addr()); err == nil {
			_ = c.Close()
			t.Fatal("a refusing proxy accepts connections")
		}
	}
}
