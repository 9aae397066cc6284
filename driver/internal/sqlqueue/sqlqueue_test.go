package sqlqueue

import (
	"testing"
	"time"
)

func TestCheckLiveness(t *testing.T) {
	for d, want := range map[time.Duration]bool{
		leastLiveness: true, DefaultLiveness: true, mostLiveness: true,
		leastLiveness - 1: false, mostLiveness + 1: false, 0: false, -time.Second: false,
	} {
		if err := CheckLiveness(d); (err == nil) != want {
			t.Errorf("CheckLiveness(%v) = %v", d, err)
		}
	}
}

func TestMicros(t *testing.T) {
	for d, want := range map[time.Duration]int64{0: 0, 1: 1, time.Microsecond: 1, time.Microsecond + 1: 2, time.Second: 1e6} {
		if n := Micros(d); n != want {
			t.Errorf("Micros(%v) = %d, want %d", d, n, want)
		}
	}
}
