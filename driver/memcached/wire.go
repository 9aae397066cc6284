package memcached

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/casqueue"
)

// The driver speaks Memcached's text protocol (doc/protocol.txt), whose answers each begin with a line of a code and,
// in meta commands, flags:
//
//	mg KEY v c                  → VA SIZE cCAS, and the value; EN: there is none
//	cas KEY 0 KEEP SIZE CAS     → STORED; EXISTS: another CAS; NOT_FOUND: there is none
//	add KEY 0 KEEP SIZE         → STORED; NOT_STORED: there is one
//	replace KEY 0 KEEP SIZE     → STORED; NOT_STORED: there is none
//	stats                       → lines of STAT NAME VALUE, and END
//
// The meta command ms has conditions too, and answers with the new CAS. But a server without free memory then deletes
// the item, whatever the condition, and so does set. A cas, add or replace that fails leaves the item as it is.

// maxKeep is the longest time to live. Memcached takes a greater number for a date.
const maxKeep = 30 * 24 * time.Hour

func appendGet(req []byte, key string) []byte {
	return fmt.Appendf(req, "mg %s v c\r\n", key)
}

// appendWrite appends a write on the condition of a verb: that there is an item, or none, or one that still has a CAS.
func appendWrite(req []byte, verb, key string, value []byte, keep time.Duration, cas string) []byte {
	req = fmt.Appendf(req, "%s %s 0 %d %d%s\r\n", verb, key, seconds(keep), len(value), cas)
	return append(append(req, value...), "\r\n"...)
}

// seconds returns how long the server has to keep an item. The server counts whole seconds, and may be one too fast.
func seconds(keep time.Duration) int64 {
	return int64((min(keep, maxKeep-2*time.Second)+time.Second-1)/time.Second) + 1
}

// reply is one answer.
type reply struct {
	code  string
	cas   uint64
	value []byte
	stats map[string]string
}

// refusal is an answer that says that the server cannot do what was requested: nothing was done.
type refusal struct{ line string }

func (r *refusal) Error() string { return "memcached answers " + strconv.Quote(r.line) }

// readReply reads one answer. A refusal is an answer too.
func readReply(r *bufio.Reader) (reply, error) {
	line, err := readLine(r)
	if err != nil {
		return reply{}, err
	}
	code, flags, _ := strings.Cut(line, " ")
	a := reply{code: code}
	switch code {
	case "VA":
		size, rest, _ := strings.Cut(flags, " ")
		n, err := strconv.Atoi(size)
		if err != nil || n < 0 || n > maxValue {
			return a, fmt.Errorf("memcached answers %q", line)
		}
		if a.value, err = readValue(r, n); err != nil {
			return a, err
		}
		flags = rest
	case "STAT":
		a.stats, err = readStats(r, line)
		return a, err
	case "EN", "STORED", "EXISTS", "NOT_FOUND", "NOT_STORED":
	case "SERVER_ERROR":
		a.value = []byte(line)
		return a, nil
	default:
		return a, &refusal{line} // the server does not know the command: the connection cannot be used any more
	}
	for flag := range strings.FieldsSeq(flags) {
		if rest, ok := strings.CutPrefix(flag, "c"); ok {
			a.cas, err = strconv.ParseUint(rest, 10, 64)
		}
	}
	return a, err
}

// maxValue is the largest value that Memcached can be told to take (-I).
const maxValue = 1 << 30

// readValue reads a value of n bytes and the end of its line. It takes no memory for bytes that do not come.
func readValue(r *bufio.Reader, n int) ([]byte, error) {
	const atOnce = 1 << 20 // what Memcached takes, if it is not told otherwise
	var b bytes.Buffer
	b.Grow(min(n, atOnce) + len("\r\n") + bytes.MinRead)
	if m, err := b.ReadFrom(io.LimitReader(r, int64(n)+2)); err != nil || m < int64(n)+2 {
		return nil, cmp.Or(err, io.ErrUnexpectedEOF)
	}
	value, ok := bytes.CutSuffix(b.Bytes(), []byte("\r\n"))
	if !ok {
		return nil, errors.New("memcached: a value does not end where it should")
	}
	return value, nil
}

// readLine reads a line, which must fit into the reader's buffer.
func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadSlice('\n')
	return strings.TrimRight(string(line), "\r\n"), err
}

// failed returns the error of an answer that says that the server has failed, mostly for want of memory.
func (a *reply) failed() error {
	if a.code != "SERVER_ERROR" {
		return nil
	}
	return driver.Unavailable(&refusal{string(a.value)})
}

// settings are the server's.
type settings struct {
	version string
	evicts  bool
	noCAS   bool
	maxItem int
}

// readStats reads the rest of an answer of statistics that begins with a line.
func readStats(r *bufio.Reader, line string) (map[string]string, error) {
	stats := make(map[string]string)
	for line != "END" {
		stat, ok := strings.CutPrefix(line, "STAT ")
		if !ok {
			return nil, &refusal{line}
		}
		name, value, _ := strings.Cut(stat, " ")
		stats[name] = value
		var err error
		if line, err = readLine(r); err != nil {
			return nil, err
		}
	}
	return stats, nil
}

// readSettings reads the answer to "stats settings".
func readSettings(r *bufio.Reader) (s settings, err error) {
	line, err := readLine(r)
	if err != nil {
		return s, err
	}
	stats, err := readStats(r, line)
	if err != nil {
		return s, err
	}
	s.evicts = stats["evictions"] != "off" && stats["evictions"] != ""
	s.noCAS = stats["cas_enabled"] == "no"
	if size, ok := stats["item_size_max"]; ok {
		s.maxItem, err = strconv.Atoi(size)
	}
	return s, err
}

// usedOf returns which part of its memory a server has used, from its statistics.
func usedOf(stats map[string]string) float64 {
	used, err1 := strconv.ParseFloat(stats["bytes"], 64)
	limit, err2 := strconv.ParseFloat(stats["limit_maxbytes"], 64)
	if err1 != nil || err2 != nil || limit <= 0 {
		return 0
	}
	return used / limit
}

// clockError is by how much less than the time that has passed two readings of the server's clock may differ.
const clockError = 2*time.Second + tick

// tick is by how much the server's clock may be behind, beside the part of a second that it does not show: a timer
// advances it each second.
const tick = time.Second

// mostUp is more seconds than any server has been up, and few enough for a time.Duration.
const mostUp = math.MaxInt32

// clockOf returns the server's clock, from its statistics: the whole seconds since it was started. Its process and the
// time of its start say which clock it is.
func clockOf(stats map[string]string) (casqueue.Time, error) {
	up, err1 := strconv.ParseInt(stats["uptime"], 10, 64)
	now, err2 := strconv.ParseInt(stats["time"], 10, 64)
	err := errors.Join(err1, err2)
	if err == nil && (up < 0 || up > mostUp) {
		err = fmt.Errorf("%d seconds", up)
	}
	if err != nil {
		return casqueue.Time{}, fmt.Errorf("memcached does not say how long it has been up: %w", err)
	}
	at := time.Duration(up) * time.Second
	return casqueue.Time{Clock: fmt.Sprintf("%s-%d", stats["pid"], now-up), Earliest: at, Latest: at + time.Second + tick}, nil
}
