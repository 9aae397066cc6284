package dynamodb

import (
	"bytes"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/dynamodb/types"

	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// FuzzItem decodes an item whose attributes may each be text (t), binary (b), a number (n), or missing. An item that is
// not locker's is a document that the engine refuses, never one that does not exist.
func FuzzItem(f *testing.F) {
	f.Fuzz(func(t *testing.T, kinds, id string, value, version []byte, expires string) {
		kinds += "----"
		i := item{}
		for n, name := range []string{idAttribute, valueAttribute, versionAttribute, expiresAttribute} {
			b := [][]byte{[]byte(id), value, version, []byte(expires)}[n]
			switch kinds[n] {
			case 't':
				i[name] = text(string(b))
			case 'b':
				i[name] = binaryOf(b)
			case 'n':
				i[name] = &types.AttributeValueMemberN{Value: string(b)}
			}
		}
		key, d := decode(i, time.Unix(1<<31, 0))
		_ = size(i)
		if kinds[0] == 't' && key != id || kinds[0] != 't' && key != "" {
			t.Errorf("key %q", key)
		}
		expanded, err := expand(value)
		whole := err == nil && kinds[0] == 't' && kinds[1] == 'b' && kinds[2] == 'b' && len(version) == versionBytes
		if whole != hasVersion(i, d.Version) && whole {
			t.Errorf("version %v", d.Version)
		}
		switch {
		case whole && (!bytes.Equal(d.Value, expanded) || kinds[3] != 'n' && d.Expired):
			t.Errorf("decoded as %+v", d)
		case kinds[0] == 't' && !whole && (len(d.Value) == 0 || d.Version != casqueue.Version{}):
			t.Errorf("what is not locker's is %+v", d)
		}
		if whole {
			if back, err := expand(compress(d.Value)); !bytes.Equal(back, d.Value) && !bytes.HasPrefix(d.Value, gzipped) || len(compress(d.Value)) > len(d.Value) {
				t.Errorf("compressed, and expanded to %q, %v", back, err)
			}
			if again := encode(key, d.Value, d.Version); !hasVersion(again, d.Version) {
				t.Errorf("encoded as %v", again)
			}
		}
	})
}
