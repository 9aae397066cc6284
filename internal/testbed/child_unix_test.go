//go:build unix

package testbed

import (
	"bufio"
	"fmt"
	"os"
	"runtime"
	"testing"
	"time"
)

func init() {
	RegisterChild("echo", childEcho)
	RegisterChild("servers", childServers)
}

func childEcho() {
	fmt.Println("ready", os.Getenv("WORD"))
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		fmt.Println("got", s.Text())
		if s.Text() == "exit" {
			return
		}
	}
}

func TestChild(t *testing.T) {
	p := Child(t, "echo", "WORD=hello")
	if got := p.WaitLine("ready "); got != "hello" {
		t.Errorf("the child's environment: %q", got)
	}
	p.Send("one")
	p.WaitLine("got one")
	p.Pause()
	if s := state(p.Pid()); haveProc && s != 'T' {
		t.Errorf("a paused child is in state %c", s)
	}
	p.Send("two")
	p.Resume()
	p.WaitLine("got two")
	p.Send("exit")
	if err := p.Wait(); err != nil {
		t.Errorf("Wait: %v", err)
	}
	p.Kill() // it has ended: does nothing

	p = Child(t, "echo")
	p.WaitLine("ready")
	p.Kill()
	if !gone(p.Pid()) {
		t.Error("a killed child is there")
	}
	if err := Child(t, "nobody").Wait(); err == nil {
		t.Error("a child that nobody registered succeeds")
	}
}

// childServers starts servers, one of them paused, and waits to be killed.
func childServers() {
	tb := new(fakeTB)
	shared, paused := SharedRedis(tb), Redis(tb)
	paused.Pause()
	base, _ := watch.folder(false)
	fmt.Println("at", runtime.NumGoroutine(), shared.Addr(), paused.inst.cmd.Process.Pid, base)
	select {}
}

func TestNothingIsLeftBehind(t *testing.T) {
	need(t, redis)
	t.Parallel()
	p := Child(t, "servers")
	var addr, base string
	var pid, goroutines int
	if _, err := fmt.Sscan(p.WaitLine("at "), &goroutines, &addr, &pid, &base); err != nil {
		t.Fatal(err)
	}
	if goroutines != 1 {
		t.Errorf("%d goroutines while two servers run, so tests cannot look for leaks", goroutines)
	}
	alive(t, redis, addr)
	_ = p.cmd.Process.Kill() // it alone: Kill would end the servers too
	deadline := time.Now().Add(10 * time.Second)
	for {
		_, err := os.Stat(base)
		if answers(redis, addr) != nil && gone(pid) && os.IsNotExist(err) {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("left behind: the paused server gone: %v, folder %s: %v", gone(pid), base, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}
