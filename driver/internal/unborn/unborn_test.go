package unborn

import (
	"fmt"
	"testing"
)

func TestTakenTwice(t *testing.T) {
	var s Set
	if s.Take("a") {
		t.Error("an empty set has a ticket")
	}
	s.Add("a")
	for i, want := range []bool{true, true, false} {
		if got := s.Take("a"); got != want {
			t.Errorf("release %d: %v, want %v", i+1, got, want)
		}
	}
}

func TestBounded(t *testing.T) {
	var s Set
	for i := range 3*most + 5 {
		s.Add(fmt.Sprint(i))
	}
	if len(s.ids) > most {
		t.Errorf("%d are remembered, want at most %d", len(s.ids), most)
	}
	if !s.Take(fmt.Sprint(3*most + 4)) {
		t.Error("the last was forgotten")
	}
}
