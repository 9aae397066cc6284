package conformance

import (
	"slices"
	"testing"
)

// The names of a case are different whatever the random number is, also if it has no letter.
func TestNamesDiffer(t *testing.T) {
	for _, n := range []uint64{0, 0x1234567890123456, 0xabcdef} {
		names := awkward(uniqueName(n))
		slices.Sort(names)
		if len(slices.Compact(slices.Clone(names))) < len(names) {
			t.Errorf("names of %x: one is there twice: %q", n, names)
		}
	}
}
