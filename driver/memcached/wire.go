package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// The driver speaks Memcached's text protocol (doc/protocol.txt), whose answers each begin with a line of a code and,
// in meta commands, flags:
//
//	mg KEY v c                  → VA SIZE cCAS, and the value; EN: there is none
//	ms KEY SIZE MS TKEEP        → HD
//	cas KEY 0 KEEP SIZE CAS     → STORED; EXISTS: another CAS; NOT_FOUND: there is none
//	add KEY 0 KEEP SIZE         → STORED; NOT_STORED: there is one
//
// The meta command ms has conditions too, and answers with the new CAS. But a server without free memory then deletes
// the item, whatever the condition. A cas or add that fails leaves the item as it is.

// maxKeep is the longest time to live. Memcached takes a greater number for a date.
const maxKeep = 30 * 24 * time.Hour

func appendGet(req []byte, key string) []byte {
	return fmt.Appendf(req, "mg %s v c\r\n", key)
}

// appendPut appends a write on condition that the item still has that CAS or, if cas is 0, that there is no item; and a
// reading of the item, for its new CAS.
func appendPut(req []byte, key string, value []byte, cas uint64, keep time.Duration) []byte {
	if cas == 0 {
		req = fmt.Appendf(req, "add %s 0 %d %d\r\n", key, seconds(keep), len(value))
	} else {
		req = fmt.Appendf(req, "cas %s 0 %d %d %d\r\n", key, seconds(keep), len(value), cas)
	}
	return appendGet(append(append(req, value...), "\r\n"...), key)
}

func appendSet(req []byte, key string, value []byte, keep time.Duration) []byte {
	req = fmt.Appendf(req, "ms %s %d MS T%d\r\n", key, len(value), seconds(keep))
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
		if err != nil || n < 0 {
			return a, fmt.Errorf("memcached answers %q", line)
		}
		a.value = make([]byte, n+2)
		if _, err := io.ReadFull(r, a.value); err != nil {
			return a, err
		}
		if !bytes.HasSuffix(a.value, []byte("\r\n")) {
			return a, errors.New("memcached: a value does not end where it should")
		}
		a.value, flags = a.value[:n], rest
	case "EN", "HD", "STORED", "EXISTS", "NOT_FOUND", "NOT_STORED":
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

func readLine(r *bufio.Reader) (string, error) {
	line, err := r.ReadString('\n')
	return strings.TrimRight(line, "\r\n"), err
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
	maxItem int
}

// readSettings reads the answer to "stats settings".
func readSettings(r *bufio.Reader) (s settings, err error) {
	for {
		line, err := readLine(r)
		if err != nil || line == "END" {
			return s, err
		}
		fields := strings.Fields(line)
		if len(fields) != 3 || fields[0] != "STAT" {
			if strings.HasPrefix(line, "STAT ") {
				continue // one without a value
			}
			return s, &refusal{line}
		}
		switch fields[1] {
		case "evictions":
			s.evicts = fields[2] != "off"
		case "item_size_max":
			s.maxItem, err = strconv.Atoi(fields[2])
			if err != nil {
				return s, err
			}
		}
	}
}
