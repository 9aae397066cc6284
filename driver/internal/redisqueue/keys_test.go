package redisqueue

import (
	"strconv"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// hard are names that a careless key would confuse.
var hard = []string{
	"a", "A", "a ", " a", "a}", "}a", "}", "{", "{}", "}{", "%", "%7D", "%25", "%7Da", "%25}", "a}:x", "a:x", "a}:s", "a}:x}", "x}:{y",
	"\x00", "a\x00", "ü", "fence", "fence:{a}", "*", "[a]", strings.Repeat("}", 512),
}

func TestKeysAreInjective(t *testing.T) {
	for _, k := range []Keys{{Prefix: "locker"}, {Prefix: "locker", Slots: true}} {
		seen := map[string]string{}
		claim := func(key, by string) {
			if other, taken := seen[key]; taken {
				t.Errorf("%q is a key of %q and of %q", key, other, by)
			}
			seen[key] = by
		}
		for _, name := range hard {
			main := k.Main(name)
			for _, suffix := range []string{"", ":x", ":s", ":h", ":e", ":t", ":p", ":d"} {
				claim(main+suffix, name)
				if Slot(main+suffix) != Slot(main) {
					t.Errorf("%q and %q are in different slots", main+suffix, main)
				}
			}
			if fence := k.Fence(main); k.Slots && Slot(fence) != Slot(main) {
				t.Errorf("%q and %q are in different slots", fence, main)
			}
		}
		for _, name := range hard {
			if owner, taken := seen[k.Fence(k.Main(name))]; taken {
				t.Errorf("the fence key is a key of %q", owner)
			}
		}
	}
}

func TestNameOfKey(t *testing.T) {
	k := Keys{Prefix: "locker"}
	for _, name := range hard {
		for _, suffix := range []string{"", ":x", ":s"} {
			if got, ok := k.Name(k.Main(name)+suffix, ":x", ":s"); !ok || got != name {
				t.Errorf("the name of %q is %q, %v; want %q", k.Main(name)+suffix, got, ok, name)
			}
		}
		for _, suffix := range []string{":h", ":e", ":t", ":p", ":d"} {
			if got, ok := k.Name(k.Main(name)+suffix, ":x", ":s"); ok {
				t.Errorf("the name of %q is %q, want none", k.Main(name)+suffix, got)
			}
		}
	}
	for _, key := range []string{"locker:fence", "locker:fence:{1}", "other:{a}", "locker:{}", "locker:{a", ""} {
		if got, ok := k.Name(key, ":x", ":s"); ok {
			t.Errorf("the name of %q is %q, want none", key, got)
		}
	}
}

func TestSlot(t *testing.T) {
	// The check value of CRC-16/XMODEM, from the Cluster specification.
	if got := crc16("123456789"); got != 0x31C3 {
		t.Errorf("crc16 = %#x, want 0x31c3", got)
	}
	for key, as := range map[string]string{
		"{user}.a": "user", "foo{}{bar}": "foo{}{bar}", "foo{{bar}}zap": "{bar", "foo{bar}{zap}": "bar",
	} {
		if got, want := Slot(key), crc16(as)%slots; got != want {
			t.Errorf("slot of %q is %d, want that of %q, %d", key, got, as, want)
		}
	}
	for s := range uint16(slots) {
		if got := Slot(strconv.FormatUint(uint64(tagOf(s)), 36)); got != s {
			t.Fatalf("the tag of slot %d is in %d", s, got)
		}
	}
}

func TestCheckPrefix(t *testing.T) {
	for _, ok := range []string{"locker", "my:app", "ü", strings.Repeat("a", 128)} {
		if err := CheckPrefix(ok); err != nil {
			t.Errorf("%q: %v", ok, err)
		}
	}
	for _, bad := range []string{"", "a b", "a{", "}", "a\n", "\x7f", "\xff", strings.Repeat("a", 129)} {
		if err := CheckPrefix(bad); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if got := (Keys{Prefix: `a*[b]\?`}).Pattern(); got != `a\*\[b\]\\\?:{*` {
		t.Errorf("pattern %q", got)
	}
}

func TestScriptsAreWhole(t *testing.T) {
	for _, s := range []*Script{Acquire, Release, Renew, KeepAlive, Break, Inspect, RedlockAcquire, RedlockRelease, RedlockKeepAlive} {
		if strings.Contains(s.source, "--#include") || len(s.hash.(string)) != 40 {
			t.Errorf("%s: not whole", s.name)
		}
	}
}
