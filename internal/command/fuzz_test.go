package command

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unicode"
)

// FuzzDuration: a time is refused with one error, or is the same after it was printed.
func FuzzDuration(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		var d durationFlag
		if err := d.Set(text); err != nil {
			if !errors.Is(err, errDuration) || d != 0 {
				t.Errorf("%q: %v, and %v", text, err, time.Duration(d))
			}
			return
		}
		if s, err := strconv.ParseFloat(text, 64); err == nil && math.Abs(time.Duration(d).Seconds()-s) > 1e-6*(1+math.Abs(s)) {
			t.Errorf("%q is %v", text, time.Duration(d))
		}
		again := d
		if shown := d.String(); shown != "" {
			if err := again.Set(shown); err != nil || again != d {
				t.Errorf("%q is shown as %q, which is %v, %v", text, shown, time.Duration(again), err)
			}
		}
	})
}

// FuzzRunFlags gives locker run any flags and names, one a line, before a command that does not exist. So no store is
// reached.
func FuzzRunFlags(f *testing.F) {
	f.Fuzz(func(t *testing.T, lines string) {
		args := strings.Split(lines, "\n")
		if slices.Contains(args, "--") {
			return
		}
		var out, errOut bytes.Buffer
		args = append(append([]string{"run"}, args...), "--", "/does/not/exist")
		code := Main(args, Streams{In: strings.NewReader(""), Out: &out, Err: &errOut})
		if code != ExitUsage && code != ExitNoCommand && (code != ExitOK || errOut.Len() > 0) {
			t.Errorf("%q: exit %d: %s", args, code, errOut.String())
		}
		if code != ExitOK && errOut.Len() == 0 || !harmless(errOut.String()) {
			t.Errorf("%q: %q", args, errOut.String())
		}
	})
}

// harmless reports whether a text does no more on a terminal than to be read.
func harmless(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) })
}

// FuzzPrintable: what a store or a user gave is harmless when it is printed, and one word for a shell.
func FuzzPrintable(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if shown := printable(text); !harmless(shown) || strings.Contains(shown, "\n") {
			t.Errorf("%q is printed as %q", text, shown)
		}
		word := shellWord(text)
		if unquoted := strings.TrimSuffix(strings.TrimPrefix(word, "'"), "'"); word != text && strings.ReplaceAll(unquoted, `'\''`, "'") != text {
			t.Errorf("%q is the word %s", text, word)
		}
		if strings.ContainsAny(word, " \t\n$`\"\\*?;&|<>()!#~") && !strings.HasPrefix(word, "'") {
			t.Errorf("%q is the word %s", text, word)
		}
	})
}
