package driver_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// FuzzParseURL: whatever the text, a URL is refused with ErrInvalidOption, or its parts are what they are after it was
// shown and parsed again.
func FuzzParseURL(f *testing.F) {
	f.Fuzz(func(t *testing.T, raw string) {
		u, err := driver.ParseURL(raw)
		if err != nil {
			if !errors.Is(err, driver.ErrInvalidOption) || len(err.Error()) > 300+10*len(raw) {
				t.Errorf("%q: %v", raw, err)
			}
			return
		}
		for _, h := range u.HostsWithPort("1") {
			if !strings.Contains(h, ":") {
				t.Errorf("%q: host %q has no port", raw, h)
			}
		}
		u.Duration("ttl", 1)
		u.Int("n", 1, 1)
		u.Bool("on", false)
		u.Param("prefix", "")
		if err := u.Done(); err != nil && !errors.Is(err, driver.ErrInvalidOption) {
			t.Errorf("%q: %v", raw, err)
		}
		shown := u.Redacted()
		if strings.Contains(shown, "@") {
			return // in a path, where it has to be escaped to be accepted
		}
		if again, err := driver.ParseURL(shown); err != nil || again.Redacted() != shown || again.Path != u.Path {
			t.Errorf("%q is shown as %q, which is %v, %v", raw, shown, again, err)
		}
	})
}

// FuzzURLTellsNoPassword: a password is neither shown nor in an error, whatever is unescaped around it.
func FuzzURLTellsNoPassword(f *testing.F) {
	f.Fuzz(func(t *testing.T, before, after, rest string) {
		if strings.Contains(before+after+rest, "://") || strings.Contains(rest, "s3cret") {
			return
		}
		who := "u:" + before + "s3cret" + after + "@" + rest
		raw := "x://" + who
		for _, raw := range []string{
			raw, "all://(" + raw + ")", "all://(x://h)(a://(" + raw + ")?n=1)", "x:/" + who + "://h", who + "://h", "all://(" + who + "://h)",
		} {
			u, err := driver.ParseURL(raw)
			if err == nil {
				_, err = driver.Open(t.Context(), u)
				err = errors.Join(err, u.Done())
				if shown := fmt.Sprintf("%v %+v %#v", u, u, u); strings.Contains(shown, "s3cret") {
					t.Errorf("%q is shown as %s", raw, shown)
				}
			}
			if err != nil && strings.Contains(err.Error(), "s3cret") {
				t.Errorf("%q: %v", raw, err)
			}
		}
	})
}
