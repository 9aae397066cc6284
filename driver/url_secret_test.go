package driver_test

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

// secretFile writes a file and returns its name.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return file
}

func parse(t *testing.T, raw string) *driver.URL {
	t.Helper()
	u, err := driver.ParseURL(raw)
	if err != nil {
		t.Fatal(err)
	}
	return u
}

func TestURLSecret(t *testing.T) {
	for _, text := range []string{"s3c ret", "s3c ret\n", "s3c ret\r\n"} {
		u := parse(t, "x://h?password_file="+secretFile(t, text))
		if got := u.Secret("password_file", u.Password); got != "s3c ret" || u.Done() != nil {
			t.Errorf("%q: %q, %v", text, got, u.Done())
		}
	}
	u := parse(t, "x://u:given@h")
	if got := u.Secret("password_file", u.Password); got != "given" || u.Done() != nil {
		t.Errorf("of the URL: %q, %v", got, u.Done())
	}
}

func TestURLSecretSaysWhatIsWrong(t *testing.T) {
	for want, raw := range map[string]string{
		"is empty":                 "x://h?password_file=" + secretFile(t, "\n"),
		"want one line":            "x://h?password_file=" + secretFile(t, "s3c\nret"),
		"the URL has the secret":   "x://u:s3c@h?password_file=" + secretFile(t, "s3cret"),
		"no such file":             "x://h?password_file=/does/not/exist",
		"want the name of a file":  "x://h?password_file=",
		"secret and nothing else":  "x://h?password_file=" + secretFile(t, "s3c"+strings.Repeat("x", 1<<17)),
		"is a directory":           "x://h?password_file=" + t.TempDir(),
		`"password_file" is given`: "x://h?password_file=a&password_file=b",
	} {
		u := parse(t, raw)
		u.Secret("password_file", u.Password)
		err := u.Done()
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "password_file") || strings.Contains(err.Error(), "s3c") {
			t.Errorf("%s: %v, want it to say %q and no secret", raw, err, want)
		}
	}
}
