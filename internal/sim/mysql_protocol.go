package sim

import (
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"time"
)

// The protocol of MySQL ("Client/Server Protocol" of its source code documentation), at the server: the text protocol of
// protocol version 10.

// Codes of errors.
const (
	myCrowded     uint16 = 1040 // too many connections
	myNull        uint16 = 1048
	myDuplicate   uint16 = 1062
	myNoThread    uint16 = 1094
	myForbidden   uint16 = 1095 // the owner of a connection is another account
	myDisk        uint16 = 1114 // a table is full
	myDeadlock    uint16 = 1213
	myTwoRows     uint16 = 1242
	myReadOnly    uint16 = 1290
	myInterrupted uint16 = 1317
	myTimeout     uint16 = 1969 // max_statement_time of MariaDB
)

// myAnswer is the answer to a statement.
type myAnswer struct {
	code         uint16 // of an error; 0: none
	rows         [][]any
	columns      int // 0: there are no rows, but numbers:
	changed, key uint64
}

func refused(code uint16) myAnswer { return myAnswer{code: code} }

// myLink is a connection, at the server.
type myLink struct {
	d      *innodb
	c      *conn
	number int64
	ends   time.Duration // for how long it lives on after it has failed
	runs   runs
}

// dial connects.
func (d *innodb) dial(ctx context.Context, p *path) (net.Conn, error) {
	l := &myLink{d: d}
	c, err := p.dial(ctx, l.serve, l.cut)
	if err != nil {
		return nil, err
	}
	l.c = c.(*conn)
	l.c.name = l.describe
	d.mu.Lock()
	d.number++
	l.number = d.number
	d.links[l.number] = l
	if d.lingers {
		l.ends = d.rnd.upTo(10 * time.Second)
	}
	d.mu.Unlock()
	l.c.push(myPackets(0, l.greeting()), 0)
	return c, nil
}

// over reports whether the server has noticed that the connection has ended.
func (l *myLink) over() bool {
	l.c.mu.Lock()
	defer l.c.mu.Unlock()
	return l.c.err != nil && time.Since(l.c.ended) >= l.ends
}

// cut cuts off the first packet.
func (*myLink) cut(sent []byte) (request, rest []byte) {
	if len(sent) < 4 {
		return nil, sent
	}
	n := 4 + int(sent[0]) + int(sent[1])<<8 + int(sent[2])<<16
	if len(sent) < n {
		return nil, sent
	}
	return sent[:n:n], sent[n:]
}

// describe says what a request does: the name of a statement, and of a queue. What changes nothing begins with GET.
func (*myLink) describe(request []byte) string {
	if len(request) < 5 || request[3] != 0 || request[4] != 3 {
		return "GET connection"
	}
	op, v := opOfMySQL(string(request[5:]))
	what := op.name
	if op.named {
		what += " " + v[0]
	}
	if !op.writes {
		what = "GET " + what
	}
	return what
}

// serve answers one request.
func (l *myLink) serve(request []byte) []byte {
	if request[3] != 0 { // the client has signed on
		_, _, full := l.d.s.state()
		if l.d.s.reads() || l.d.full == myCrowded && full.After(time.Now()) {
			return myPackets(2, errorPacket(myCrowded))
		}
		return myPackets(2, okPacket(0, 0))
	}
	switch request[4] {
	case 1:
		l.c.fail(errReset)
		return nil
	case 3:
		sql := string(request[5:])
		op, v := opOfMySQL(sql)
		return myEncode(l.execute(op, v), strings.HasPrefix(sql, "CALL "))
	}
	return myPackets(1, okPacket(0, 0))
}

// execute runs a statement, which may be interrupted.
func (l *myLink) execute(op *myOp, v []string) myAnswer {
	canceled, end := l.runs.begin()
	defer end()
	return l.d.run(l, op, v, canceled)
}

// myPackets numbers packets.
func myPackets(first byte, all ...[]byte) (b []byte) {
	for i, p := range all {
		b = append(b, byte(len(p)), byte(len(p)>>8), byte(len(p)>>16), first+byte(i)) //nolint:gosec // few
		b = append(b, p...)
	}
	return b
}

func (l *myLink) greeting() []byte {
	const protocol41, transactions, secure, results, plugin = 1 << 9, 1 << 13, 1 << 15, 1 << 17, 1 << 19
	caps := uint32(1 | protocol41 | transactions | secure | results | plugin)
	b := append([]byte{10}, "10.11.14-MariaDB\x00"...)
	b = binary.LittleEndian.AppendUint32(b, uint32(l.number)) //nolint:gosec // small
	b = append(b, "12345678\x00"...)
	b = binary.LittleEndian.AppendUint16(b, uint16(caps&0xffff)) //nolint:gosec // its lower half
	b = append(b, 45, 2, 0)
	b = binary.LittleEndian.AppendUint16(b, uint16(caps>>16)) //nolint:gosec // its upper half
	b = append(b, 21)
	b = append(b, make([]byte, 10)...)
	return append(b, "123456789012\x00mysql_native_password\x00"...)
}

// myNumber appends a length-encoded integer.
func myNumber(b []byte, n uint64) []byte {
	switch {
	case n < 251:
		return append(b, byte(n))
	case n < 1<<16:
		return binary.LittleEndian.AppendUint16(append(b, 0xfc), uint16(n))
	case n < 1<<24:
		return append(b, 0xfd, byte(n), byte(n>>8), byte(n>>16))
	}
	return binary.LittleEndian.AppendUint64(append(b, 0xfe), n)
}

func myText(b []byte, s string) []byte { return append(myNumber(b, uint64(len(s))), s...) }

const moreResults = 8

func okPacket(changed, key uint64) []byte {
	return append(myNumber(myNumber([]byte{0}, changed), key), 2, 0, 0, 0)
}

func errorPacket(code uint16) []byte {
	return append(binary.LittleEndian.AppendUint16([]byte{0xff}, code), "#HY000refused"...)
}

// myEncode is the answer of a statement. The rows of a procedure are followed by its end.
func myEncode(a myAnswer, call bool) []byte {
	switch {
	case a.code != 0:
		return myPackets(1, errorPacket(a.code))
	case a.columns == 0:
		return myPackets(1, okPacket(a.changed, a.key))
	}
	status := byte(0)
	if call {
		status = moreResults
	}
	end := []byte{0xfe, 0, 0, 2 | status, 0}
	all := [][]byte{myNumber(nil, uint64(a.columns))} //nolint:gosec // few
	for range a.columns {
		b := myText(myText(myText(myText(myText(myText(nil, "def"), ""), ""), ""), "c"), "c")
		all = append(all, append(b, 0x0c, 63, 0, 0, 1, 0, 0, 0xfd, 0, 0, 0, 0, 0)) // binary strings
	}
	all = append(all, end)
	for _, row := range a.rows {
		var b []byte
		for _, v := range row {
			if v == nil {
				b = append(b, 0xfb)
			} else {
				b = myText(b, fmt.Sprint(v))
			}
		}
		all = append(all, b)
	}
	all = append(all, end)
	if call {
		all = append(all, okPacket(0, 0))
	}
	return myPackets(1, all...)
}
