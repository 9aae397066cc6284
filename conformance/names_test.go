package conformance

import (
	"slices"
	"testing"
)

// The names that a case takes to be different are, whatever the random number is: one without a letter, too.
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
