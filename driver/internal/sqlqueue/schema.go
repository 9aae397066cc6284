package sqlqueue

import (
	"crypto/sha256"
	"encoding/hex"
	"strings"
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

// Differs says that the table of tickets, which has a comment, is of another edition.
func (e Edition) Differs(table, comment string) string {
	have, ok := strings.CutPrefix(comment, commentBegin)
	if !ok {
		have = "unknown, or the table is another program's"
	}
	return "the table " + table + " is of schema version " + have + ", and this program needs version " + e.String() +
		": run programs of one version only. "
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
