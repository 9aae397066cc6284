package redisqueue

import (
	"github.com/lockerproject/locker/driver/internal/protocol"
)

// Version is that of the keys and scripts here, which all who use the same locks
// have to share. It goes up with each change after which older programs and newer
// ones would not exclude each other.
const Version = "1"

// protocolKey is the end of the key that says which version is in use.
const protocolKey = "protocol"

// Check makes the check of a driver. Programs with different forms of main keys would
// not exclude each other either. kind sets drivers apart that use other keys.
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

// ParseProtocol reads the answer of the protocol script.
func ParseProtocol(v any) (string, error) {
	found, ok := v.(string)
	if !ok {
		return "", Unexpected("protocol", v)
	}
	return found, nil
}
