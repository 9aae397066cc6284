package stripe

import (
	"fmt"
	"hash/fnv"
	"strconv"
	"unicode/utf8"

	"github.com/lockerproject/locker"
)

// Most is the largest number of names in a set.
const Most = 1 << 16

// Keys gives every key one of n lock names, by a hash: always the same for a key,
// in every process.
//
// A program that needs several keys takes them at once, with locker.AcquireAll and
// [Keys.All]. If it takes them one after the other, two programs may wait for each other,
// and one with two keys of the same name waits for itself.
type Keys struct{ set }

// NewKeys returns the set of n names name/0 … name/n-1, 1 ≤ n ≤ Most. Another n is
// locker.ErrInvalidOption. Names that are invalid for a Locker are
// locker.ErrInvalidName.
func NewKeys(name string, n int) (*Keys, error) {
	s, err := newSet(name, n)
	if err != nil {
		return nil, err
	}
	return &Keys{s}, nil
}

// For returns the lock name of key. The hash is FNV-1a, 64 bits, modulo n.
func (k *Keys) For(key string) string {
	h := fnv.New64a()
	_, _ = h.Write([]byte(key)) // never fails
	return k.Name(int(h.Sum64() % uint64(k.n)))
}

// All returns the lock names of keys, for locker.AcquireAll. If several keys have the
// same name, AcquireAll takes it once.
func (k *Keys) All(keys ...string) []string {
	names := make([]string, len(keys))
	for i, key := range keys {
		names[i] = k.For(key)
	}
	return names
}

// set is n names.
type set struct {
	name string
	n    int
}

func newSet(name string, n int) (set, error) {
	s := set{name: name, n: n}
	if n < 1 || n > Most {
		return s, fmt.Errorf("%w: %d stripes: want 1 to %d", locker.ErrInvalidOption, n, Most)
	}
	const most = 512 // of a lock name, in bytes
	if last := s.Name(n - 1); name == "" || len(last) > most || !utf8.ValidString(name) {
		return s, fmt.Errorf("%w: %q: want valid UTF-8 of 1 to %d bytes, with /%d at its end",
			locker.ErrInvalidName, name, most, n-1)
	}
	return s, nil
}

// Len returns the number of names.
func (s *set) Len() int { return s.n }

// Name returns the i-th name, from 0.
func (s *set) Name(i int) string { return s.name + "/" + strconv.Itoa(i) }

// Names returns all names, in order.
func (s *set) Names() []string {
	names := make([]string, s.n)
	for i := range names {
		names[i] = s.Name(i)
	}
	return names
}
