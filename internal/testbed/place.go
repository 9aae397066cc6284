package testbed

import (
	"fmt"
	"os/exec"
)

// A Place is where a member of an ensemble runs, so that a program can part the
// members. The caller has made it. The zero Place is the loopback of this machine.
type Place struct {
	Host string   // the address that its servers listen on, and use among themselves
	Run  []string // what starts a command there, such as ip netns exec NAME
}

// Places has [EtcdCluster], [ConsulCluster], [NatsCluster], [ZookeeperEnsemble] and
// [RedisSentinel] start their members in the given places, by turns. A sentinel runs
// beside the server of the same number.
func Places(places ...Place) Option { return func(o *options) { o.places = places } }

// host is the address that the node listens on.
func (n *node) host() string {
	if n.place.Host == "" {
		return "127.0.0.1"
	}
	return n.place.Host
}

// addr is the host:port of the node's i-th port.
func (n *node) addr(i int) string { return fmt.Sprintf("%s:%d", n.host(), n.ports[i]) }

// put has cmd run in the place.
func (p Place) put(cmd *exec.Cmd) *exec.Cmd {
	if len(p.Run) == 0 {
		return cmd
	}
	moved := exec.Command(p.Run[0], append(p.Run[1:len(p.Run):len(p.Run)], cmd.Args...)...)
	moved.Env, moved.SysProcAttr = cmd.Env, cmd.SysProcAttr
	return moved
}
