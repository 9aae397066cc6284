//go:build unix

package testbed

import (
	"fmt"
	"net"
	"os/exec"
	"sync"
	"testing"
)

// TestPortIsFree: nothing has a port that was found free, also while other tests start
// servers.
func TestPortIsFree(t *testing.T) {
	stop := make(chan struct{})
	var starts sync.WaitGroup
	for range 2 {
		starts.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					_ = exec.Command("true").Run()
				}
			}
		})
	}
	defer starts.Wait()
	defer close(stop)
	for range 500 {
		port, err := reservePort()
		if err != nil {
			t.Fatal(err)
		}
		l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		releasePort(port)
		if err != nil {
			t.Fatal(err)
		}
		_ = l.Close()
	}
}
