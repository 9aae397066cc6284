package dynamodb_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/lockerproject/locker/driver"
)

func TestURL(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-north-1")
	for url, want := range map[string]string{
		"dynamodb://Locks_1.a-b":               "dynamodb Locks_1.a-b",
		"dynamodb://locks/?region=eu-west-1":   "dynamodb locks",
		"dynamodb://locks?endpoint=http://a:1": "dynamodb locks",
		"dynamodb://locks?prefix=p&ttl=5s&timeout=1s&dial_timeout=1s&pool_size=3&create=true&replicas=accept": "dynamodb locks",
	} {
		d, err := open(t.Context(), url)
		if err != nil {
			t.Errorf("%s: %v", url, err)
			continue
		}
		if got := fmt.Sprint(d); got != want {
			t.Errorf("%s: %q, want %q", url, got, want)
		}
		_ = d.Close()
	}
}

func TestURLWrong(t *testing.T) {
	t.Setenv("AWS_REGION", "eu-north-1")
	for url, want := range map[string]string{
		"dynamodb://":                                         "want dynamodb://table",
		"dynamodb://a,b":                                      "want dynamodb://table",
		"dynamodb://locks/path":                               "want dynamodb://table",
		"dynamodb://locks:80":                                 "table",
		"dynamodb://me:geheim@locks":                          "no password",
		"dynamodb://AKIA@locks":                               "no password",
		"dynamodb://locks?endpoint=locks:8000":                "endpoint",
		"dynamodb://locks?endpoint=ftp://a":                   "endpoint",
		"dynamodb://locks?replicas=perhaps":                   "replicas",
		"dynamodb://locks?create=perhaps":                     "create",
		"dynamodb://locks?timeout=0":                          "timeout",
		"dynamodb://locks?pool_size=0":                        "pool_size",
		"dynamodb://me:geheim@locks?no_such=1":                "no_such",
		"dynamodb://locks?prefix=" + strings.Repeat("x", 200): "prefix",
	} {
		d, err := open(t.Context(), url)
		if err == nil {
			t.Errorf("%s is accepted", url)
			_ = d.Close()
			continue
		}
		if !errors.Is(err, driver.ErrInvalidOption) || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%s: %v, want %q", url, err, want)
		}
	}
}

// A URL without a region takes the region of the SDK's settings, and is refused if there is none.
func TestNoRegion(t *testing.T) {
	for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	t.Setenv("AWS_CONFIG_FILE", "/none")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/none")
	if _, err := open(t.Context(), "dynamodb://locks"); !errors.Is(err, driver.ErrInvalidOption) || !strings.Contains(err.Error(), "region") {
		t.Errorf("without a region: %v", err)
	}
}

// The SDK, which looks for credentials on a machine that has none, would write a line to
// standard error: the error says the same.
func TestSDKWritesNothing(t *testing.T) {
	metadata := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusForbidden) }))
	defer metadata.Close()
	t.Setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", metadata.URL)
	for _, name := range []string{"AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"} {
		t.Setenv(name, filepath.Join(t.TempDir(), "none"))
	}
	for _, name := range []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"} {
		t.Setenv(name, "")
	}
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func(stderr *os.File) { os.Stderr = stderr }(os.Stderr)
	os.Stderr = w
	d, err := open(t.Context(), "dynamodb://locks?region=eu-west-1&endpoint=http://127.0.0.1:1")
	if err != nil {
		t.Fatal(err)
	}
	err = d.(driver.Pinger).Ping(t.Context())
	_ = d.Close()
	_ = w.Close()
	if written, _ := io.ReadAll(r); len(written) > 0 {
		t.Errorf("standard error has %q", written)
	}
	if err == nil || !strings.Contains(err.Error(), "credentials") {
		t.Errorf("%v, want what is wrong with the credentials", err)
	}
}
