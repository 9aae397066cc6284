package redisqueue

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// ParseView reads what inspect.lua answers: a queue as one server has it, in no order.
func (f Form) ParseView(v any) ([]driver.Ticket, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 5 {
		return nil, Unexpected("inspect", v)
	}
	text, _ := list[0].(string)
	now, err := strconv.ParseInt(text, 10, 64)
	value, held := list[1].(string)
	left, ok1 := list[2].(int64)
	holders, ok2 := list[3].([]any)
	waiters, ok3 := list[4].([]any)
	if err != nil || !ok1 || !ok2 || !ok3 {
		return nil, Unexpected("inspect", v)
	}
	var queue []driver.Ticket
	for _, e := range append(holders, waiters...) {
		t, ok := f.parseTicket(e, now)
		if !ok {
			return nil, Unexpected("inspect", v)
		}
		queue = append(queue, t)
	}
	if held && value != f.Word+" *" { // what the main key holds while shared tickets hold
		t := f.Holder(value)
		t.Remaining = max(0, time.Duration(left)*time.Millisecond)
		queue = append(queue, t)
	}
	return queue, nil
}

// Holder reads the value of a main key: "word id number record", or a ? in place of the first
// blank while the lease is provisional. Anything else is another library's.
func (f Form) Holder(value string) driver.Ticket {
	rest, ours := strings.CutPrefix(value, f.Word+" ")
	if !ours {
		rest, ours = strings.CutPrefix(value, f.Word+"?")
	}
	part := strings.SplitN(rest, " ", 3)
	if !ours || len(part) != 3 {
		return foreignHolder(value)
	}
	token, err1 := strconv.ParseUint(part[1], 10, 64)
	t, err2 := f.Parse(part[2])
	if err1 != nil || err2 != nil {
		return foreignHolder(value)
	}
	t.ID, t.Token, t.Held = part[0], token, true
	return t
}

// parseTicket reads {id, number, end of the lease or x or s, record}.
func (f Form) parseTicket(e any, now int64) (t driver.Ticket, ok bool) {
	list, _ := e.([]any)
	var part [4]string
	if len(list) != len(part) {
		return t, false
	}
	for i := range part {
		if part[i], ok = list[i].(string); !ok {
			return t, false
		}
	}
	token, err := strconv.ParseUint(part[1], 10, 64)
	if err != nil {
		return t, false
	}
	if t, err = f.Parse(part[3]); err != nil {
		return t, false
	}
	t.ID, t.Token = part[0], token
	switch part[2] {
	case "x":
	case "s":
		t.Shared = true
	default:
		till, err := strconv.ParseInt(part[2], 10, 64)
		if err != nil {
			return t, false
		}
		t.Shared, t.Held = true, true
		t.Remaining = max(0, time.Duration(till-now)*time.Microsecond)
	}
	return t, true
}
