package command

import (
	"encoding/json"
	"testing"
	"time"
)

// Numbers of --json have no more digits than were measured.
func TestSeconds(t *testing.T) {
	t.Parallel()
	for us := range int64(100_000) {
		d := time.Duration(us*17+1_400_000) * time.Microsecond
		if text, _ := json.Marshal(seconds(d)); len(text) > len("1.234567") {
			t.Fatalf("%v is %s", d, text)
		}
	}
}
