package command

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	_ "github.com/lockerproject/locker/driver/all" // the store is a matter of configuration
	"github.com/lockerproject/locker/driver/redis"
)

// The Redis client prints every failed dial by itself; locker says what went wrong.
func init() { redis.LogTo(nil) }

const (
	envURL     = "LOCKER_URL"
	envURLFile = "LOCKER_URL_FILE"
)

// storeURLs returns the URLs of the stores, one or more: those of --url, of
// LOCKER_URL (several are separated by blanks), of the file that
// LOCKER_URL_FILE names, or the default store's.
func (a *app) storeURLs() ([]string, error) {
	if len(a.urls) > 0 {
		return checkURLs("--url", a.urls)
	}
	if text, ok := os.LookupEnv(envURL); ok {
		return checkURLs(envURL, strings.Fields(text))
	}
	if path := os.Getenv(envURLFile); path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, configuration(fmt.Errorf("%s: %w", envURLFile, err))
		}
		return checkURLs("the file of "+envURLFile, strings.Fields(string(text)))
	}
	u, err := defaultURL()
	if err != nil {
		return nil, err
	}
	return []string{u}, nil
}

func checkURLs(from string, urls []string) ([]string, error) {
	if len(urls) == 0 || slices.Contains(urls, "") {
		return nil, configuration(fmt.Errorf("%s is empty: want the URL of a store", from))
	}
	return urls, nil
}

// storeURL is storeURLs for a verb that works on one store.
func (a *app) storeURL() (string, error) {
	urls, err := a.storeURLs()
	if err != nil {
		return "", err
	}
	if len(urls) > 1 {
		return "", usage(fmt.Errorf("%d stores are given: want one", len(urls)))
	}
	return urls[0], nil
}

// open opens the store. Most drivers do not ask the store then. The caller closes
// the Client.
func (a *app) open(ctx context.Context) (*locker.Client, error) {
	u, err := a.storeURL()
	if err != nil {
		return nil, err
	}
	return openURL(ctx, u)
}

// openURL opens one store.
func openURL(ctx context.Context, u string, opts ...locker.ClientOption) (*locker.Client, error) {
	c, err := locker.Open(ctx, u, opts...)
	if err != nil {
		return nil, notOpened(err)
	}
	return c, nil
}

// notOpened gives the error of opening a store its exit code. It is one of the configuration, unless the
// store did not answer, or has refused: etcd's client logs in when it is made.
func notOpened(err error) error {
	switch {
	case driver.IsUnavailable(err):
		return driver.Unavailable(err)
	case errors.Is(err, rpctypes.ErrAuthFailed):
		return exit(ExitRefused, err, "")
	}
	return configuration(err)
}

// parsedURL is storeURL, parsed.
func (a *app) parsedURL() (*driver.URL, error) {
	raw, err := a.storeURL()
	if err != nil {
		return nil, err
	}
	u, err := driver.ParseURL(raw)
	if err != nil {
		return nil, configuration(fmt.Errorf("open: %w", err))
	}
	return u, nil
}

// storeName is the URL of the store as it may be shown.
func (a *app) storeName() (string, error) {
	u, err := a.parsedURL()
	if err != nil {
		return "", err
	}
	return u.Redacted(), nil
}

// openDriver opens the driver of a store, as openURL opens its Client. The caller has read the parameter ttl.
func openDriver(ctx context.Context, u *driver.URL) (driver.Driver, error) {
	d, err := driver.Open(ctx, u)
	if err != nil {
		return nil, notOpened(fmt.Errorf("open %s: %w", u.Redacted(), err))
	}
	if err := u.Done(); err != nil { // about ttl, if the driver did not call it
		return nil, errors.Join(configuration(fmt.Errorf("open %s: %w", u.Redacted(), err)), d.Close())
	}
	return d, nil
}

// defaultURL is the file that the processes of one user share. The driver makes its folder.
func defaultURL() (string, error) {
	state := os.Getenv("XDG_STATE_HOME")
	if !filepath.IsAbs(state) { // relative paths are to be ignored, says the XDG specification
		home, err := os.UserHomeDir()
		if err != nil {
			return "", configuration(fmt.Errorf("no store is given, and the folder of the default one is unknown: %w", err))
		}
		state = filepath.Join(home, ".local", "state")
	}
	u := url.URL{Scheme: "sqlite", Path: filepath.ToSlash(filepath.Join(state, "locker", "locks.db"))}
	return u.String(), nil
}
