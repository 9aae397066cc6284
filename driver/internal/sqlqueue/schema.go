package sqlqueue

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/lockerproject/locker/internal/retry"
)

// An Edition is a version of the tables and of what works on them, and a hash of their text. The names of what programs
// call contain it, so that a program finds nothing of another version, nor what differs under the same version. The
// comment of the table of tickets contains its edition.
type Edition struct{ Version, Hash string }

func (e Edition) String() string { return e.Version + " (" + e.Hash + ")" }

// Name is an Edition in a name.
func (e Edition) Name() string { return e.Version + "_" + e.Hash }

const commentBegin = "locker: tickets, schema "

// Comment is that of the table of tickets.
func (e Edition) Comment() string { return commentBegin + e.String() }

// A Schema is how programs that need an Edition say what is wrong with the tables.
type Schema struct {
	Edition Edition
	Tickets string // the table
	Package string // has a function Schema; "": there is no SQL that somebody could run
	Upgrade string // how to move on from another edition
	Create  bool   // whether this program may create the tables
}

// differs returns the error of a program whose tables are of another edition.
func (s *Schema) differs(comment string, missing error) error {
	have, ok := strings.CutPrefix(comment, commentBegin)
	if !ok {
		have = "unknown, or the table is another program's"
	}
	return fmt.Errorf("the table %s is of schema version %s, and this program needs version %s: run programs of one version only. %s (%w)",
		s.Tickets, have, s.Edition, s.Upgrade, missing)
}

// missing returns the error of a program that cannot create tables: cause is why, if it has tried.
func (s *Schema) missing(missing, cause error) error {
	if s.Package == "" {
		return cmp.Or(cause, missing)
	}
	how := fmt.Sprintf("; create them with the SQL that %s.Schema returns (locker schema %[1]s)", s.Package)
	if cause != nil {
		return fmt.Errorf("tables of locker are missing (%v) and could not be created: %w%s", missing, cause, how) //nolint:errorlint // the cause says what can be done
	}
	return fmt.Errorf("tables of locker are missing (%w)%s", missing, how)
}

// MakeTables is called when a request has failed because tables are missing. It creates them, if create is set and this
// program may. There says that the request can be sent again. With neither that nor an error nobody has created tables
// yet. Tables that have vanished since this program has used them are an error: to create them again would grant what
// others hold.
func MakeTables(ctx context.Context, e *Engine, missing error, create, used bool) (there bool, err error) {
	s := &e.opts.Schema
	is, err := e.store.Tables(ctx)
	switch {
	case err != nil:
		return false, err
	case is.Tickets && is.Comment != s.Edition.Comment():
		return false, s.differs(is.Comment, missing)
	case is.Complete: // somebody has created it since the request failed
		return true, nil
	case used && !is.Tickets:
		return false, fmt.Errorf("tables of locker have vanished since they were first used (%w): restore them, "+
			"or end all programs that hold locks before new ones are created", missing)
	case is.Tickets && (used || !create): // somebody creates them, one after the other
		if !retry.Sleep(ctx, 100*time.Millisecond, nil) {
			return false, missing
		}
		return true, nil
	case !s.Create:
		return false, s.missing(missing, nil)
	case !create:
		return false, nil
	}
	if err = e.store.Create(ctx); err != nil && e.store.Class(err)&(Passing|Down) == 0 {
		err = s.missing(missing, err)
	}
	return err == nil, err
}

// Hash returns eight hexadecimal digits that identify a text of SQL. Comments and blanks do
// not count.
func Hash(sql ...string) string {
	var words []string
	for _, text := range sql {
		for line := range strings.SplitSeq(text, "\n") {
			line, _, _ = strings.Cut(line, "--")
			words = append(words, strings.Fields(line)...)
		}
	}
	sum := sha256.Sum256([]byte(strings.Join(words, " ")))
	return hex.EncodeToString(sum[:4])
}

// Shown is a regular expression for the lower-case hexadecimal digits of text that may be
// shown as it is: UTF-8 without control characters, characters that change the direction of
// writing, and those that cannot be seen. PostgreSQL, MySQL and MariaDB read it alike.
// Text that begins with mark does not match either: the form of all other text begins with
// mark.
func Shown(mark string) string {
	const (
		not = "c2ad|d89c|e1a08e|e2808[b-f]|e280a[89a-e]|e281a|efbbbf|efbfb[9ab]|f3a0" // soft hyphen to tags
		con = "[89ab][0-9a-f]"                                                        // a byte that continues a character
		one = "[2-6][0-9a-f]|7[0-9a-e]"
		two = "c2[ab][0-9a-f]|(?:c[3-9a-f]|d[0-9a-f])" + con
		tri = "e0[ab][0-9a-f]" + con + "|e(?:[1-9abcef]" + con + "|d[89][0-9a-f])" + con
		mor = "f0[9ab][0-9a-f]" + con + con + "|f[123]" + con + con + con + "|f48[0-9a-f]" + con + con
	)
	return "^(?!" + hex.EncodeToString([]byte(mark)) + ")(?:(?!" + not + ")(?:" + one + "|" + two + "|" + tri + "|" + mor + "))*$"
}
