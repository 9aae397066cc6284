package all_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/redis"
)

// files are parameters that name a file, which may be any on this machine.
var files = []string{"ca", "cert", "key", "password_file", "token_file", "sentinel_password_file", "sslrootcert", "sslcert", "sslkey", "passfile", "servicefile"}

// openOnly opens and closes a driver. It fails if that takes long, or an error tells the password.
func openOnly(t *testing.T, raw string) {
	t.Helper()
	begun := time.Now()
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond) // etcd asks for a token
	defer cancel()
	u, err := driver.ParseURL(raw)
	if err == nil {
		var d driver.Driver
		if d, err = driver.Open(ctx, u); err == nil {
			if text := fmt.Sprint(d); strings.Contains(text, "s3cret") {
				t.Errorf("%q is shown as %s", raw, text)
			}
			_ = d.Close()
		}
	}
	wrong := errors.Is(err, driver.ErrInvalidOption) || driver.IsUnavailable(err) || ctx.Err() != nil
	if err != nil && (!wrong || strings.Contains(err.Error(), "s3cret") || len(err.Error()) > 2000+20*len(raw)) {
		t.Errorf("%q: %v", raw, err)
	}
	if took := time.Since(begun); took > 10*time.Second {
		t.Errorf("%q takes %v", raw, took)
	}
}

// FuzzOpen opens the stores of all schemes with any parameters, alone and in compositions. None is reached.
func FuzzOpen(f *testing.F) {
	redis.LogTo(nil)
	schemes := driver.Schemes()
	f.Fuzz(func(t *testing.T, scheme, user, password, path, query string) {
		if !slices.Contains(schemes, scheme) {
			return
		}
		values, _ := url.ParseQuery(query)
		for _, file := range files {
			if values.Get(file) != "" && values.Get(file) != "/does/not/exist" {
				return
			}
		}
		where := "127.0.0.1:1"
		switch scheme {
		case "redlock":
			where = "127.0.0.1:1,127.0.0.1:2,127.0.0.1:3"
		case "dynamodb":
			where = "table"
		case "sqlite":
			where, path = "", "/dev/null/"+path
		case "all", "fallback", "tokenbase", "memory":
			where = ""
		}
		who := ""
		if user+password != "" {
			who = url.PathEscape(user) + ":s3cret" + url.PathEscape(password) + "@"
		}
		raw := scheme + "://" + who + where + "/" + (&url.URL{Path: path}).EscapedPath() + "?" + query
		openOnly(t, raw)
		openOnly(t, "fallback://(memory://)("+raw+")?"+query)
		openOnly(t, "all://("+raw+")(tokenbase://(memory://)?n=1&"+query+")")
	})
}
