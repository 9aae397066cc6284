package redisqueue

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// Keys makes the names of the keys that a driver with one prefix has in Redis.
type Keys struct {
	Prefix string
	// Form is the form of main keys, with a * in place of the name; empty: see Main.
	Form string
	// Slots says that the store is a Redis Cluster, where all keys of one
	// command must be in one hash slot.
	Slots bool
}

// CheckPrefix refuses prefixes that would break the hash tags of a Cluster, or the
// scripts.
func CheckPrefix(prefix string) error {
	if prefix == "" || len(prefix) > 128 {
		return fmt.Errorf("prefix of %d bytes: want 1 to 128", len(prefix))
	}
	bad := func(c rune) bool { return c <= ' ' || c == 0x7f || c == '{' || c == '}' }
	if !utf8.ValidString(prefix) || strings.ContainsFunc(prefix, bad) {
		return fmt.Errorf("prefix %q: want text without braces, blanks and control characters", prefix)
	}
	return nil
}

// Main returns the key that the exclusive holder of a name sets. It has the given form,
// or else is prefix:{name}, where the braces make the name the hash tag of all its
// keys. Only a leading } would make the tag empty; it is written %7D, and a leading %
// is written %25, so that different names keep different keys.
func (k Keys) Main(name string) string {
	if k.Form != "" {
		return strings.Replace(k.Form, "*", name, 1)
	}
	var b strings.Builder
	b.Grow(len(k.Prefix) + len(name) + 6)
	b.WriteString(k.Prefix)
	b.WriteString(":{")
	switch name[0] {
	case '}':
		b.WriteString("%7D")
		name = name[1:]
	case '%':
		b.WriteString("%25")
		name = name[1:]
	}
	b.WriteString(name)
	b.WriteByte('}')
	return b.String()
}

// beside are the ends of the names of the keys beside a main key.
var beside = []string{":x", ":s", ":h", ":e", ":t", ":p", ":d"}

// never is the end of the name of a key that is never there; see Keys.All.
const never = ":-"

// formMark stands before these endings if main keys have a form. No UTF-8 text has this
// byte, so such a key is no other name's main key.
const formMark = "\xff"

// side returns a key beside a main key.
func (k Keys) side(main, end string) string {
	if k.Form != "" {
		end = formMark + end
	}
	return main + end
}

// All returns the keys that a script on a main key is called with: that key, then more,
// then in a Cluster all other keys of the queue, and one that is never there. A master
// whose hash slot is being moved refuses a script if it lacks one of the keys. So it does
// not run it on a part of the queue, nor on a whole queue of which the script might remove
// a key and then ask for it, which would fail in the middle.
func (k Keys) All(main string, more ...string) []string {
	if !k.Slots {
		return append([]string{main}, more...)
	}
	keys := make([]string, 0, 2+len(more)+len(beside))
	keys = append(append(keys, main), more...)
	for _, end := range beside {
		keys = append(keys, k.side(main, end))
	}
	return append(keys, k.side(main, never))
}

// Held returns the keys that the renewal of a lease is called with: in a Cluster, those
// that exist as long as the lease does. So a lease that is renewed in time outlives a
// move of its hash slot.
func (k Keys) Held(main string, shared bool) []string {
	if !k.Slots || !shared {
		return []string{main}
	}
	return []string{main, k.side(main, ":h"), k.side(main, ":e"), k.side(main, ":t")}
}

// Name returns the name to which a key belongs, as its main key or as the key beside
// that with one of the ends. If main keys have a form, the key may also be other data.
func (k Keys) Name(key string, ends ...string) (string, bool) {
	for _, end := range ends {
		if main, ok := strings.CutSuffix(key, k.side("", end)); ok {
			key = main
			break
		}
	}
	if k.Form != "" {
		head, tail, _ := strings.Cut(k.Form, "*")
		s, ok1 := strings.CutPrefix(key, head)
		s, ok2 := strings.CutSuffix(s, tail)
		return s, ok1 && ok2 && s != "" && utf8.ValidString(s)
	}
	s, ok1 := strings.CutPrefix(key, k.Prefix+":{")
	s, ok2 := strings.CutSuffix(s, "}") // no name's main key ends like a key beside it
	if !ok1 || !ok2 || s == "" {
		return "", false
	}
	if rest, ok := strings.CutPrefix(s, "%7D"); ok {
		s = "}" + rest
	} else if rest, ok := strings.CutPrefix(s, "%25"); ok {
		s = "%" + rest
	}
	return s, k.Main(s) == key
}

// Pattern is the glob of SCAN that finds all keys of all names.
func (k Keys) Pattern() string {
	head := k.Prefix + ":{"
	if k.Form != "" {
		head, _, _ = strings.Cut(k.Form, "*")
	}
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(head) + "*"
}

// Fence returns the key of the last token: one for the whole prefix or, in a
// Cluster, one for each hash slot in use.
func (k Keys) Fence(main string) string {
	if !k.Slots {
		return k.Prefix + ":fence"
	}
	return k.Prefix + ":fence:{" + strconv.FormatUint(uint64(tagOf(Slot(main))), 36) + "}"
}

// Channel makes a channel for this process.
func (k Keys) Channel() string {
	var id [8]byte
	_, _ = rand.Read(id[:]) // never fails, by its documentation
	return k.Prefix + ":proc:" + hex.EncodeToString(id[:])
}
