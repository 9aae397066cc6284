package etcd

import (
	"encoding/json"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/lockerproject/locker/driver"
)

// A record is what encoding/json makes of it, or reads the same.
func TestRecordIsJSON(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.OneOf(rapid.StringMatching(`[ -~]{0,20}`), rapid.String())
		r := driver.Request{
			ID: rapid.StringMatching(`[0-9a-z-]{1,64}`).Draw(t, "id"), Owner: text.Draw(t, "owner"),
			Note: rapid.OneOf(rapid.Just(""), text).Draw(t, "note"), Limit: rapid.IntRange(0, 2).Draw(t, "limit"),
		}
		now := time.UnixMilli(rapid.Int64Range(1, 1<<42).Draw(t, "now"))
		var got record
		if err := json.Unmarshal(encodeRecord(r, now), &got); err != nil {
			t.Fatalf("%s: %v", encodeRecord(r, now), err)
		}
		if want := (record{r.ID, r.Owner, r.Note, r.Limit, now.UnixMilli()}); got != want {
			t.Fatalf("%s is read as %+v, want %+v", encodeRecord(r, now), got, want)
		}
	})
}
