package memcached

import (
	"bufio"
	"bytes"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// FuzzReply reads answers until one cannot be read. What a server announces and does not send takes no memory.
func FuzzReply(f *testing.F) {
	f.Fuzz(func(t *testing.T, sent []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		r := bufio.NewReaderSize(bytes.NewReader(sent), 64<<10)
		for {
			a, err := readReply(r)
			if errors.As(err, new(*refusal)) && len(err.Error()) > 4*len(sent)+100 {
				t.Errorf("%.100v", err)
			}
			if err != nil {
				break
			}
			_ = a.failed()
			_ = usedOf(a.stats)
			if now, err := clockOf(a.stats); err == nil && (now.Earliest < 0 || now.Latest <= now.Earliest) {
				t.Errorf("the clock is %+v", now)
			}
			if a.code == "VA" && !bytes.Contains(sent, a.value) {
				t.Errorf("%q was not sent", a.value)
			}
		}
		runtime.ReadMemStats(&after)
		if took := after.TotalAlloc - before.TotalAlloc; took > 8<<20+64*uint64(len(sent)) {
			t.Errorf("%d bytes for an answer of %d", took, len(sent))
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Fuzz(func(t *testing.T, sent string) {
		s, err := readSettings(bufio.NewReader(strings.NewReader(sent)))
		if err == nil && !strings.Contains(sent, "END") {
			t.Errorf("%q is taken for %+v", sent, s)
		}
	})
}
