package zookeeper_test

import (
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/lockerproject/locker/internal/testbed"
)

// mntr asks the server what it has counted.
func mntr(t testing.TB, srv *testbed.Server) map[string]int {
	t.Helper()
	c, err := net.DialTimeout("tcp", srv.Addr(), 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	fmt.Fprint(c, "mntr")
	out, err := io.ReadAll(c)
	if err != nil {
		t.Fatal(err)
	}
	counts := make(map[string]int)
	for line := range strings.Lines(string(out)) {
		k, v, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if n, err := strconv.ParseFloat(v, 64); err == nil {
			counts[strings.TrimPrefix(k, "zk_")] = int(n)
		}
	}
	return counts
}

func TestXContended(t *testing.T) {
	srv := testbed.Zookeeper(t, testbed.Faults())
	_ = srv
}
