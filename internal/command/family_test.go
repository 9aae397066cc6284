//go:build unix

package command_test

import (
	osexec "os/exec"
	"strings"
	"testing"

	"github.com/lockerproject/locker/internal/testbed"
)

// A command that is to end gets SIGTERM once, as do all processes that it has started:
// many stop cleaning up after a second one.
func TestRunLostTellsOnce(t *testing.T) {
	t.Parallel()
	url := testbed.SharedRedis(t).URL()
	holder := locked(t, "LOCKER_URL="+url, []string{t.Name(), "--ttl=6s", "--grace=2s"}, shell(`
		counts='trap "echo \$0 is told" TERM; echo $0 is up; while :; do sleep 0.05; done'
		sh -c "$counts" child & setsid sh -c "$counts" other & exec sh -c "$counts" command`)).Start()
	whole := []string{"child", "other", "command"}
	for _, name := range whole {
		holder.WaitOut(name + " is up")
	}
	c := client(t, url)
	if err := c.Break(t.Context(), t.Name(), queue(t, c, t.Name())[0].Token); err != nil {
		t.Fatal(err)
	}
	r := holder.Wait()
	for _, name := range whole {
		if n := strings.Count(r.Out, name+" is told"); n != 1 {
			t.Errorf("%s is told %d times: %v", name, n, r)
		}
	}
}

// As the first process of a container locker takes in the orphans, and leaves no
// zombies.
func TestRunFirstProcess(t *testing.T) {
	t.Parallel()
	isolate := []string{"unshare", "--pid", "--fork", "--mount-proc"}
	if out, err := osexec.CommandContext(t.Context(), isolate[0], append(isolate[1:], "true")...).CombinedOutput(); err != nil {
		t.Skipf("no process namespaces here: %v %s", err, out)
	}
	cmd := locked(t, "LOCKER_URL="+testbed.SharedRedis(t).URL(), []string{t.Name()}, shell(`
		zombies() { cat /proc/[0-9]*/stat 2>/dev/null | grep -c ') Z '; }
		for i in 1 2 3; do sh -c 'sleep 0.05 &'; done
		sleep 0.1; n=0
		while [ $(zombies) -gt 0 ] && [ $n -lt 50 ]; do sleep 0.1; n=$((n+1)); done
		zombies; exit 3`))
	unshare, err := osexec.LookPath(isolate[0])
	if err != nil {
		t.Fatal(err)
	}
	cmd.Path, cmd.Args = unshare, append(append(isolate, cmd.Path), cmd.Args[1:]...)
	if r := cmd.Run(); r.Code != 3 || r.Out != "0\n" {
		t.Error(r)
	}
}
