package command

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// print writes a result: v as JSON under --json, else what people writes.
func (a *app) print(v any, people func(w io.Writer)) {
	if !a.json {
		people(a.out)
		return
	}
	enc := json.NewEncoder(a.out)
	enc.SetEscapeHTML(false)
	_ = enc.Encode(v) // out has the error
}

// printed is standard output. It keeps the first error, which Main reports, so that nobody else looks at it
// who prints and then ends; after it nothing is written.
type printed struct {
	io.Writer
	err error
}

func (p *printed) Write(b []byte) (n int, err error) {
	if p.err == nil {
		n, p.err = p.Writer.Write(b)
	}
	return n, p.err
}

// isTerminal reports whether a stream is a terminal.
func isTerminal(stream any) bool {
	if p, ok := stream.(*printed); ok {
		stream = p.Writer
	}
	f, ok := stream.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// A style is a colour or weight of text on a terminal.
type style string

const (
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// colours reports whether w takes colours: it is a terminal that is not dumb, and
// NO_COLOR is not set (https://no-color.org).
func colours(w io.Writer) bool {
	return os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb" && isTerminal(w)
}

// paint gives text a style where w takes colours.
func paint(w io.Writer, s style, text string) string {
	if text == "" || !colours(w) {
		return text
	}
	return "\x1b[" + string(s) + "m" + text + "\x1b[0m"
}

// printable returns text as it is if it can do no harm on a terminal and stays on
// one line, else quoted as in Go: anybody may have set names, owners and notes.
func printable(text string) string {
	for _, r := range text {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(text)
		}
	}
	return text
}

// shellWord returns text as one word of a shell's command line.
func shellWord(text string) string {
	safe := func(r rune) bool {
		return r < utf8.RuneSelf && (unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("-_./:@%+=,", r))
	}
	if text != "" && strings.IndexFunc(text, func(r rune) bool { return !safe(r) }) < 0 {
		return text
	}
	return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'"
}

// nameWord returns the name of a lock as the last argument of a shell's command line.
func nameWord(name string) string {
	if strings.HasPrefix(name, "-") {
		return "-- " + shellWord(name)
	}
	return shellWord(name)
}

// count is a number with its noun.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}
