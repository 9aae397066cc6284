// Package setup has what the constructors of all drivers do alike.
package setup

import (
	"fmt"
	"slices"
	"strings"

	"github.com/lockerproject/locker/driver"
)

// Apply applies options. A nil one does nothing.
func Apply[T any, O ~func(*T)](to *T, opts []O) {
	for _, opt := range opts {
		if opt != nil {
			opt(to)
		}
	}
}

// Open opens a driver by a URL with one of its schemes, the first of which is the name of the store.
func Open[D any](url string, open func(*driver.URL) (D, error), schemes ...string) (d D, err error) {
	store := schemes[0]
	u, err := driver.ParseURL(url)
	if err != nil {
		return d, fmt.Errorf("%s: open: %w", store, err)
	}
	if !slices.Contains(schemes, u.Scheme) {
		return d, fmt.Errorf("%s: open: scheme %q: want %s", store, u.Scheme, strings.Join(schemes, " or "))
	}
	if d, err = open(u); err != nil {
		return d, fmt.Errorf("%s: open %s: %w", store, u.Redacted(), err)
	}
	return d, nil
}
