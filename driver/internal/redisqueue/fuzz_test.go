package redisqueue

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/lockerproject/locker/driver"
)

// FuzzRecord: a record is read as it was written, and whatever else is there is an error or no more than it says.
func FuzzRecord(f *testing.F) {
	f.Fuzz(func(t *testing.T, text, owner, note string, limit uint16) {
		for _, form := range []Form{{Word: "locker"}, {Word: "redlock", Head: 1}} {
			since := strings.Repeat("7 ", form.Head) + "1700000000000000 "
			r := driver.Request{Owner: owner, Note: note, Limit: int(limit)}
			got, err := form.Parse(since + Record("locker:proc:0123", r))
			if err != nil || got.Owner != owner || got.Note != note || got.Limit != int(limit) || got.Since != time.UnixMicro(1700000000000000) {
				t.Errorf("%+v came back as %+v, %v", r, got, err)
			}
			if got, err := form.Parse(text); err == nil && (len(got.Owner)+len(got.Note) > len(text) || got.Limit < 0) {
				t.Errorf("%q is read as %+v", text, got)
			}
			if h := form.Holder(form.Word + " " + text); h.Owner != Foreign && (!h.Held || !strings.HasPrefix(text, h.ID+" ") || h.Shared) {
				t.Errorf("%q is held by %+v", text, h)
			}
		}
		if h := foreignHolder(text); !h.Held || h.Token == 0 || h.Token > 1<<32 {
			t.Errorf("%q is held by %+v", text, h)
		}
	})
}

// FuzzView reads what the inspect scripts answer, with one holder and one waiter.
func FuzzView(f *testing.F) {
	f.Fuzz(func(t *testing.T, now, value string, left int64, id, number, kind, record string) {
		ticket := []any{id, number, kind, record}
		queue, err := Form{Word: "locker"}.ParseView([]any{now, value, left, []any{ticket}, []any{ticket}})
		if err != nil {
			if len(err.Error()) > 1000+4*(len(now)+len(value)+2*len(id+number+kind+record)) {
				t.Errorf("an error of %d bytes", len(err.Error()))
			}
			return
		}
		if exclusive := value != "locker *"; len(queue) != 2 && !exclusive || len(queue) != 3 && exclusive {
			t.Errorf("%q: the queue is %+v", value, queue)
		}
		for _, shown := range queue[:2] {
			if shown.ID != id || shown.Remaining < 0 || shown.Held && !shown.Shared {
				t.Errorf("shown as %+v", shown)
			}
		}
	})
}

// FuzzKey: a key names a lock only if it is one of that lock's keys.
func FuzzKey(f *testing.F) {
	ends := []string{":x", ":s"}
	f.Fuzz(func(t *testing.T, key, name string) {
		for _, k := range []Keys{{Prefix: "locker"}, {Prefix: "locker", Form: "lock:*"}, {Prefix: "locker", Form: "{*}:lock", Slots: true}} {
			if got, ok := k.Name(key, ends...); ok {
				main := k.Main(got)
				if key != main && key != k.side(main, ":x") && key != k.side(main, ":s") {
					t.Errorf("form %q: %q is taken for a key of %q", k.Form, key, got)
				}
			}
			if name == "" || !utf8.ValidString(name) {
				continue
			}
			for _, key := range []string{k.Main(name), k.side(k.Main(name), ":x"), k.side(k.Main(name), ":s")} {
				if got, ok := k.Name(key, ends...); !ok || got != name {
					t.Errorf("form %q: the name of %q is %q, want %q", k.Form, key, got, name)
				}
			}
		}
	})
}

// FuzzLoss reads notifications of broken tickets.
func FuzzLoss(f *testing.F) {
	f.Fuzz(func(t *testing.T, text string) {
		if h, ok := ParseLoss(text); ok && (!strings.HasPrefix(text, h.ID+" ") || !strings.HasSuffix(text, " "+h.Name)) {
			t.Errorf("%q is the loss of %+v", text, h)
		}
	})
}

// FuzzHeartbeat gives a heartbeat for one ticket an answer of up to four numbers, or of text.
func FuzzHeartbeat(f *testing.F) {
	f.Fuzz(func(t *testing.T, n uint8, after, flags, state, more int64, text string) {
		answers := []any{[]any{after, flags, state, more}[:n%5], text, []any{text, flags, state}, nil, after}
		for _, v := range answers {
			Unsubscribed(v)
			states := 0
			h := Heartbeats{
				Nodes: 1, Quorum: 1, State: func(int, string, int64, bool) { states++ },
				Ask: func(int, string, []string, func(any, error)) {},
			}
			h.Enter("name", "xid", time.Now(), ParseOutlook(after, flags))
			h.answer(h.names["name"], 0, time.Now(), []string{"xid"}, v, nil)
			whole, ok := v.([]any)
			if ok = ok && len(whole) == 3 && whole[0] == any(after); states > 0 && !ok || states == 0 && ok {
				t.Errorf("%v is %d states", v, states)
			}
			h.Leave("name", "xid")
			h.Close()
		}
	})
}
