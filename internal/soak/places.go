//go:build linux

package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// A place is a network namespace with an address on a bridge, which the workers reach.
type place struct {
	space, address string
}

// at has the testbed start members in the places.
func at(places []place) []testbed.Option {
	var list []testbed.Place
	for _, p := range places {
		list = append(list, testbed.Place{Host: p.address, Run: []string{"ip", "netns", "exec", p.space}})
	}
	return []testbed.Option{testbed.Places(list...)}
}

// makePlaces makes n network namespaces, until b ends. The error is why they are not to
// be had.
func makePlaces(b *testbed.Program, n int) ([]place, error) {
	for i := range 250 {
		lock, err := os.OpenFile(filepath.Join(os.TempDir(), fmt.Sprintf("locker-soak-%d.lock", i)), os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, err
		}
		if syscall.Flock(int(lock.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) != nil {
			_ = lock.Close()
			continue // another run has it
		}
		b.Cleanup(func() { _ = lock.Close() })
		bridge, net := fmt.Sprintf("soak%d", i), fmt.Sprintf("10.213.%d.", i)
		var places []place
		for m := range n {
			places = append(places, place{fmt.Sprintf("%s-%d", bridge, m), fmt.Sprint(net, m+1)})
		}
		remove := func() {
			for _, p := range places {
				_ = ip("netns", "del", p.space)
			}
			_ = ip("link", "del", bridge)
		}
		remove() // what a run has left that was killed
		b.Cleanup(remove)
		return places, connect(bridge, net+"254/24", places)
	}
	return nil, fmt.Errorf("all networks are in use")
}

func connect(bridge, address string, places []place) error {
	commands := [][]string{
		{"link", "add", bridge, "type", "bridge"},
		{"addr", "add", address, "dev", bridge},
		{"link", "set", bridge, "up"},
	}
	for i, p := range places {
		outside := fmt.Sprintf("%sv%d", bridge, i)
		commands = append(commands,
			[]string{"netns", "add", p.space},
			[]string{"link", "add", outside, "type", "veth", "peer", "name", "eth0", "netns", p.space},
			[]string{"link", "set", outside, "master", bridge, "up"},
			[]string{"-n", p.space, "addr", "add", p.address + "/24", "dev", "eth0"},
			[]string{"-n", p.space, "link", "set", "eth0", "up"},
			[]string{"-n", p.space, "link", "set", "lo", "up"})
	}
	for _, c := range commands {
		if err := ip(c...); err != nil {
			return err
		}
	}
	return nil
}

// nowhere is an address of the link layer that nobody has: what is sent to it is lost.
const nowhere = "02:00:00:00:00:01"

// lose has all be lost that p sends to another address, until restore.
func (p place) lose(to string) error {
	return ip("-n", p.space, "neigh", "replace", to, "lladdr", nowhere, "nud", "permanent", "dev", "eth0")
}

func (p place) restore(to string) error {
	return ip("-n", p.space, "neigh", "del", to, "dev", "eth0")
}

// clients is the address from which the workers come.
func (p place) clients() string {
	return p.address[:bytes.LastIndexByte([]byte(p.address), '.')] + ".254"
}

func ip(args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	out, err := exec.CommandContext(ctx, "ip", args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %v: %w: %s", args, err, bytes.TrimSpace(out))
	}
	return nil
}
