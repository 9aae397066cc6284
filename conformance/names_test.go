package conformance

import (
	"slices"
	"testing"
)

// The names of a case are different whatever the random number is, also if it has no letter.
func TestNamesDiffer(t *testing.T) {
	for _, n := range []uint64{0, 0x1234567890123456, 0xabcdef} {
		u := uniqueName(n)
		for what, names := range map[string][]string{"awkward": awkward(u), "alike": alike(u)} {
			slices.Sort(names)
			if len(slices.Compact(slices.Clone(names))) < len(names) {
				t.Errorf("%s names of %q: one is there twice: %q", what, u, names)
			}
		}
	}
}
