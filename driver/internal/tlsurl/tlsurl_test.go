package tlsurl_test

import (
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/tlsurl"
	"github.com/lockerproject/locker/internal/testbed"
)

func parse(t *testing.T, raw string) *driver.URL {
	t.Helper()
	u, err := driver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestConfig(t *testing.T) {
	certs := testbed.NewCerts(t)
	u := parse(t, "x://h?"+url.Values{
		"tls": {"true"}, "ca": {certs.CA}, "cert": {certs.Cert}, "key": {certs.Key}, "server_name": {"elsewhere"},
	}.Encode())
	c := tlsurl.Config(u, false)
	if err := u.Done(); err != nil {
		t.Fatal(err)
	}
	if c.RootCAs == nil || len(c.Certificates) != 1 || c.ServerName != "elsewhere" || c.InsecureSkipVerify {
		t.Errorf("got %+v", c)
	}
	if got := tlsurl.ForHost(c, "h:1"); got.ServerName != "elsewhere" {
		t.Errorf("for a host: %q", got.ServerName)
	}
	u = parse(t, "xs://h?insecure_skip_verify=true")
	if c = tlsurl.Config(u, true); u.Done() != nil || !c.InsecureSkipVerify {
		t.Errorf("not verified: %+v, %v", c, u.Done())
	}
	if got := tlsurl.ForHost(c, "[::1]:1"); got.ServerName != "::1" || c.ServerName != "" {
		t.Errorf("for a host: %q, and the one for all %q", got.ServerName, c.ServerName)
	}
	u = parse(t, "x://h?tls=false")
	if c = tlsurl.Config(u, false); c != nil || u.Done() != nil || tlsurl.ForHost(c, "h:1") != nil {
		t.Errorf("without TLS: %+v, %v", c, u.Done())
	}
}

func TestConfigSaysWhatIsWrong(t *testing.T) {
	certs := testbed.NewCerts(t)
	junk := filepath.Join(t.TempDir(), "junk")
	if err := os.WriteFile(junk, []byte("s3cret"), 0o600); err != nil {
		t.Fatal(err)
	}
	for raw, want := range map[string]string{
		"xs://h?tls=false":                "parameter tls=false",
		"x://h?tls=perhaps":               "want true or false",
		"x://h?ca=f":                      "want tls=true",
		"x://h?server_name=n":             "want tls=true",
		"x://h?insecure_skip_verify=true": "want tls=true",

		"xs://h?insecure_skip_verify=true&ca=" + certs.CA:       "parameter insecure_skip_verify=true",
		"xs://h?ca=/does/not/exist":                             "parameter ca: open /does/not/exist",
		"xs://h?ca=" + junk:                                     "parameter ca: file " + junk,
		"xs://h?cert=" + certs.Cert:                             "parameters cert and key: want both",
		"xs://h?key=" + certs.Key:                               "parameters cert and key: want both",
		"xs://h?cert=/no&key=" + certs.Key:                      "parameter cert: open /no",
		"xs://h?key=/no&cert=" + certs.Cert:                     "parameter key: open /no",
		"xs://h?cert=" + certs.Cert + "&key=" + junk:            "parameters cert and key: ",
		"xs://h?cert=" + certs.Cert + "&key=" + certs.ServerKey: "parameters cert and key: ",
	} {
		u := parse(t, raw)
		tlsurl.Config(u, u.Scheme == "xs")
		if err := u.Done(); err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%s: %v, want it to say %q", raw, err, want)
		}
	}
}
