package command

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
)

// Renewals that fail again and again are said once, and again after one that has succeeded.
func TestFailedRenewalsAreSaidOnce(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}, verbose: true}
	n, e := &narrator{app: a}, &elect{app: a, name: "a", narrator: &narrator{app: a}}
	for who, observe := range map[string]func(context.Context, locker.Event){"run": n.observe, "elect": e.observe} {
		out.Reset()
		for _, kind := range []locker.EventKind{
			locker.EventRenewed, locker.EventRenewFailed, locker.EventRenewFailed, locker.EventRenewFailed,
			locker.EventRenewed, locker.EventRenewed, locker.EventRenewFailed,
		} {
			observe(t.Context(), locker.Event{Kind: kind, Name: "a", Err: errors.New("no answer")})
		}
		if text := out.String(); strings.Count(text, "not renewed, will try again: no answer\n") != 2 || strings.Count(text, "renewed again\n") != 1 ||
			strings.Count(text, "\n") != 3 {
			t.Errorf("%s says\n%s", who, text)
		}
	}
}

// Campaigns that fail in one outage are said once, whatever each says, and again in the next outage, or if the store refuses them then.
func TestFailedCampaignsAreSaidOnce(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}}
	e := &elect{app: a, name: "a", narrator: &narrator{app: a}}
	failed := func(text string) {
		e.observe(t.Context(), locker.Event{Kind: locker.EventFailed, Name: "a", Err: driver.Unavailable(errors.New(text))})
	}
	failed("from port 4001")
	failed("from port 4002")
	e.observe(t.Context(), locker.Event{Kind: locker.EventWaiting, Name: "a"})
	failed("from port 4002")
	e.observe(t.Context(), locker.Event{Kind: locker.EventAcquired, Name: "a"})
	failed("from port 4003")
	e.observe(t.Context(), locker.Event{Kind: locker.EventFailed, Name: "a", Err: errors.New("wrong password")})
	const says = "locker: a: cannot campaign, will try again: "
	if text := out.String(); text != says+"from port 4001\n"+says+"from port 4002\n"+says+"from port 4003\n"+says+"wrong password\n" {
		t.Errorf("it says\n%s", text)
	}
}

// A grant by a substitute for the store is said without --verbose too: two may hold the lock.
func TestDegradedGrantsAreSaid(t *testing.T) {
	var out bytes.Buffer
	a := &app{Streams: Streams{Err: &out}}
	n, e := &narrator{app: a}, &elect{app: a, name: "a", narrator: &narrator{app: a}}
	for who, observe := range map[string]func(context.Context, locker.Event){"run": n.observe, "elect": e.observe} {
		out.Reset()
		observe(t.Context(), locker.Event{Kind: locker.EventAcquired, Name: "a"})
		observe(t.Context(), locker.Event{Kind: locker.EventAcquired, Name: "a", Degraded: errors.New("no answer")})
		if text := out.String(); text != "locker: a: acquired on a substitute for the store: no answer\n" {
			t.Errorf("%s says\n%s", who, text)
		}
	}
}

// A lock that is kept for its minimum hold is not said to be free.
func TestReleaseWithinTheMinimumHold(t *testing.T) {
	var out bytes.Buffer
	n := &narrator{app: &app{Streams: Streams{Err: &out}, verbose: true}, minHold: time.Minute}
	n.observe(t.Context(), locker.Event{Kind: locker.EventReleased, Name: "a", Elapsed: 2 * time.Second})
	n.observe(t.Context(), locker.Event{Kind: locker.EventReleased, Name: "b", Elapsed: 2 * time.Minute})
	if text := out.String(); text != "locker: a: released after 2s; it stays locked for at least 1m0s from its grant\nlocker: b: released after 2m0s\n" {
		t.Errorf("it says\n%s", text)
	}
}

// The lines of an error become one, as a sentence.
func TestErrorsOfSeveralLines(t *testing.T) {
	for text, want := range map[string]string{
		"a":               "a",
		"a\nb\n":          "a; b",
		"failed:\n\tb\nc": "failed: b; c", // as pgx reports what each address has answered
	} {
		if got := oneLine(text); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

func TestApart(t *testing.T) {
	for address, want := range map[string]string{
		"redis://h":                        "redis://h?prefix=locker-conformance",
		"redis://u:p@h/3?ttl=3s":           "redis://u:p@h/3?prefix=locker-conformance&ttl=3s",
		"etcd://h,i?prefix=a":              "etcd://h,i?prefix=a-conformance",
		"redis://h?key_form=*":             "redis://h?prefix=locker-conformance",
		"postgres://h/d?prefix=a":          "postgres://h/d?prefix=a",
		"mysql://h/d":                      "mysql://h/d",
		"sqlite:///x":                      "sqlite:///x",
		"fallback://(redis://h)(mysql://)": "fallback://(redis://h)(mysql://)",
	} {
		if got := withSuitePrefix(address); got != want {
			t.Errorf("%s: %s, want %s", address, got, want)
		}
	}
}
