package redisqueue

import (
	"strconv"
	"strings"
	"time"

	"github.com/lockerproject/locker/driver"
)

// A View is what view.lua answers: a queue as one server has it.
type View struct {
	Taken   bool            // somebody holds exclusively
	Value   string          // of the main key, then
	Left    time.Duration   // until the main key expires
	Tickets []driver.Ticket // shared holders and waiters, in no order
}

// ParseView reads an answer. mark is the main key's value while shared tickets
// hold.
func ParseView(v any, mark string, form Form) (View, error) {
	list, ok := v.([]any)
	if !ok || len(list) != 5 {
		return View{}, Unexpected("inspect", v)
	}
	text, _ := list[0].(string)
	now, err := strconv.ParseInt(text, 10, 64)
	value, taken := list[1].(string)
	left, ok1 := list[2].(int64)
	holders, ok2 := list[3].([]any)
	waiters, ok3 := list[4].([]any)
	if err != nil || !ok1 || !ok2 || !ok3 {
		return View{}, Unexpected("inspect", v)
	}
	view := View{Taken: taken && value != mark, Value: value, Left: time.Duration(left) * time.Millisecond}
	for _, e := range append(holders, waiters...) {
		t, ok := parseTicket(e, now, form)
		if !ok {
			return View{}, Unexpected("inspect", v)
		}
		view.Tickets = append(view.Tickets, t)
	}
	return view, nil
}

// ParseHolder reads "id number record" of an exclusive holder.
func (f Form) ParseHolder(s string) (t driver.Ticket, ok bool) {
	part := strings.SplitN(s, " ", 3)
	if len(part) != 3 {
		return t, false
	}
	token, err1 := strconv.ParseUint(part[1], 10, 64)
	t, err2 := f.Parse(part[2])
	t.ID, t.Token, t.Held = part[0], token, true
	return t, err1 == nil && err2 == nil
}

// parseTicket reads {id, number, end of the lease or x or s, record}.
func parseTicket(e any, now int64, form Form) (t driver.Ticket, ok bool) {
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
	if t, err = form.Parse(part[3]); err != nil {
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
