package redisqueue

import (
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// Version is the version of the keys and scripts. All programs that use the same
// locks must have the same one. It goes up with each change after which older and
// newer programs would not exclude each other, or not read each other's records.
const Version = "2"

// protocolKey is the end of the key that says which version is in use.
const protocolKey = "protocol"

// Check makes the check of a driver. It compares the form of main keys too: programs
// with different forms would not exclude each other either. kind distinguishes
// drivers that use other keys.
func (k Keys) Check(kind string) (c *protocol.Check, key string) {
	own := Version
	if k.Form != "" {
		own += " key_form=" + k.Form
	}
	key = k.Prefix + ":" + protocolKey
	remedy := "delete that key"
	if kind != "" {
		key += ":" + kind
		remedy += " on every node"
	}
	return protocol.New(own, "the key "+key, remedy), key
}

// ProtocolCall asks for the version in use. With write, it writes the own one if there is none.
func ProtocolCall(c *protocol.Check, key string, write bool) *Call {
	if write {
		return NewCall(Protocol, []string{key}, c.Own())
	}
	return NewCall(Protocol, []string{key})
}

// ParseProtocol reads the answer of the protocol script.
func ParseProtocol(v any) (string, error) {
	found, ok := v.(string)
	if !ok {
		return "", Unexpected("protocol", v)
	}
	return found, nil
}
