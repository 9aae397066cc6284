package command_test

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"net"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/internal/command"
	"github.com/lockerproject/locker/internal/commandtest"
	"github.com/lockerproject/locker/internal/testbed"
)

// consoleSays is what locker console --json prints.
type consoleSays struct {
	URL        string   `json:"url"`
	Token      string   `json:"token"`
	AllowBreak bool     `json:"allow_break"`
	Stores     []string `json:"stores"`
}

// startConsole starts the console on a free port.
func startConsole(t *testing.T, c *commandtest.Cmd) (*commandtest.Cmd, consoleSays) {
	t.Helper()
	c.Start()
	var says consoleSays
	if err := json.Unmarshal([]byte(c.WaitOut("}\n")), &says); err != nil {
		t.Fatal(err)
	}
	return c, says
}

func browse(t *testing.T) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Jar: jar, Transport: transport, Timeout: time.Minute}
}

// loginAt logs in and returns the address that it ends at.
func loginAt(t *testing.T, client *http.Client, base, token string) string {
	t.Helper()
	res, err := client.PostForm(base+"/login", url.Values{"token": {token}})
	if err != nil {
		t.Fatal(err)
	}
	res.Body.Close()
	return strings.TrimPrefix(res.Request.URL.String(), base)
}

// streamUntil reads the console's stream until a line contains text.
func streamUntil(t *testing.T, client *http.Client, base, text string) {
	t.Helper()
	res, err := client.Get(base + "/api/events")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	lines := bufio.NewScanner(res.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), text) {
			return
		}
	}
	t.Fatalf("the stream ended without %q: %v", text, lines.Err())
}

func TestConsole(t *testing.T) {
	t.Parallel()
	redis, etcd := testbed.SharedRedis(t).URL()+"?prefix=console", testbed.SharedEtcd(t).URL()+"?prefix=console"
	for _, u := range []string{redis, etcd} {
		c, err := locker.Open(t.Context(), u)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if _, err := c.Acquire(t.Context(), "job", locker.WithOwner("owner in "+u[:5])); err != nil {
			t.Fatal(err)
		}
	}
	cmd, says := startConsole(t, commandtest.Command(t, "console", "--json", "--listen", "127.0.0.1:0", "--url", redis, "--url", etcd))
	if says.AllowBreak || len(says.Token) < 20 || len(says.Stores) != 2 || !strings.HasSuffix(says.Stores[0], " console") {
		t.Errorf("it says %+v", says)
	}
	client := browse(t)
	if at := loginAt(t, client, says.URL, "not the token at all"); at != "/login?refused" {
		t.Errorf("with a wrong token one gets to %s", at)
	}
	if at := loginAt(t, client, says.URL, says.Token); at != "/" {
		t.Errorf("with the token one gets to %s", at)
	}
	streamUntil(t, client, says.URL, "owner in redis")
	streamUntil(t, client, says.URL, "owner in etcd:")
	cmd.Signal(syscall.SIGTERM)
	r := cmd.Wait()
	if r.Code != 0 || r.Took > 30*time.Second {
		t.Error(r)
	}
	if strings.Contains(r.ErrOut, says.Token) || strings.Count(r.Out, says.Token) != 1 {
		t.Errorf("the token is printed more than once\n%v", r)
	}
}

func TestConsoleToken(t *testing.T) {
	t.Parallel()
	const secret = "a token of our own"
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []*commandtest.Cmd{
		commandtest.Command(t, "console", "--json", "--listen", "127.0.0.1:0", "--url", "memory://", "--token-file", file),
		commandtest.Command(t, "console", "--json", "--listen", "127.0.0.1:0", "--url", "memory://", "--allow-break").With("LOCKER_CONSOLE_TOKEN=" + secret),
	} {
		cmd, says := startConsole(t, c)
		if says.Token != "" {
			t.Errorf("it prints the token that it was given: %+v", says)
		}
		if at := loginAt(t, browse(t), says.URL, secret); at != "/" {
			t.Errorf("with the token one gets to %s", at)
		}
		cmd.Signal(syscall.SIGINT)
		if r := cmd.Wait(); r.Code != 0 || strings.Contains(r.Out+r.ErrOut, secret) {
			t.Error(r)
		}
	}
}

func TestConsoleTLS(t *testing.T) {
	t.Parallel()
	certs := testbed.NewCerts(t)
	cmd, says := startConsole(t, commandtest.Command(t, "console", "--json", "--listen", "127.0.0.1:0", "--url", "memory://",
		"--tls-cert", certs.ServerCert, "--tls-key", certs.ServerKey))
	ca, err := os.ReadFile(certs.CA)
	if err != nil {
		t.Fatal(err)
	}
	client := browse(t)
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	client.Transport.(*http.Transport).TLSClientConfig = &tls.Config{RootCAs: pool}
	if at := loginAt(t, client, says.URL, says.Token); !strings.HasPrefix(says.URL, "https://") || at != "/" {
		t.Errorf("at %s one gets to %s", says.URL, at)
	}
	cmd.Signal(syscall.SIGTERM)
	if r := cmd.Wait(); r.Code != 0 {
		t.Error(r)
	}
}

func TestConsoleForPeople(t *testing.T) {
	t.Parallel()
	cmd := commandtest.Command(t, "console", "--listen", "0.0.0.0:0", "--url", "memory://", "--allow-break").Start()
	out := cmd.WaitOut("token: ")
	if !strings.HasPrefix(out, "console: http://localhost:") || !strings.Contains(out, "(1 store, locks can be broken)") {
		t.Errorf("it says %q", out)
	}
	cmd.WaitErr("others can reach the console, and read the token on its way")
}

func TestConsoleWrongUses(t *testing.T) {
	t.Parallel()
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	const hidden = "swordfish"
	for _, c := range []struct {
		args []string
		env  string
		code int
		want string
	}{
		{[]string{"--url", "memory://", "--listen", busy.Addr().String()}, "", command.ExitFailure, "address already in use"},
		{[]string{"--url", "memory://", "--listen", "nonsense"}, "", command.ExitUsage, "missing port"},
		{[]string{"--url", "nosuch://x"}, "", command.ExitConfig, "nosuch"},
		{[]string{"--url", "redis://u:" + hidden + "@h:1?nonsense=1"}, "", command.ExitConfig, "nonsense"},
		{[]string{"--url", "memory://"}, "LOCKER_CONSOLE_TOKEN=" + hidden, command.ExitUsage, "needs at least 16"},
		{[]string{"--url", "memory://", "--token-file", "/nonexistent"}, "", command.ExitUsage, "no such file"},
		{[]string{"--url", "memory://", "--token-file", empty}, "", command.ExitUsage, "is empty"},
		{[]string{"--url", "memory://", "--tls-cert", empty}, "", command.ExitUsage, "go together"},
		{[]string{"--url", "memory://", "--tls-cert", empty, "--tls-key", empty}, "", command.ExitUsage, "--tls-cert"},
		{[]string{"--url", "memory://", "--every", "1ms"}, "", command.ExitUsage, "too often"},
		{[]string{"argument"}, "", command.ExitUsage, "argument"},
	} {
		r := commandtest.Command(t, append([]string{"console"}, c.args...)...).With(c.env).Run()
		if r.Code != c.code || !strings.Contains(r.ErrOut, c.want) || strings.Contains(r.Out+r.ErrOut, hidden) || r.Out != "" {
			t.Errorf("want exit code %d and %q\n%v", c.code, c.want, r)
		}
	}
}

// With --json all that the console says on standard error is JSON, too.
func TestConsoleJSONErrors(t *testing.T) {
	t.Parallel()
	cmd, says := startConsole(t, commandtest.Command(t, "console", "--listen", "0.0.0.0:0", "--url", "memory://", "--json"))
	loginAt(t, browse(t), says.URL, "wrong")
	text := cmd.WaitErr("login refused")
	for line := range strings.Lines(text) {
		if strings.HasSuffix(line, "\n") && !json.Valid([]byte(line)) {
			t.Errorf("no JSON: %q", line)
		}
	}
}

// The console goes on when whoever reads its log goes.
func TestConsoleWithoutAReader(t *testing.T) {
	t.Parallel()
	cmd := commandtest.Command(t, "console", "--json", "--listen", "127.0.0.1:0", "--url", "memory://")
	reader, writer, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stderr = writer
	cmd, says := startConsole(t, cmd)
	_, _ = writer.Close(), reader.Close()
	client := browse(t)
	for range 3 { // each is logged
		if at := loginAt(t, client, says.URL, says.Token); at != "/" {
			t.Fatalf("with the token one gets to %s", at)
		}
	}
	cmd.Signal(syscall.SIGTERM)
	if r := cmd.Wait(); r.Code != 0 {
		t.Error(r)
	}
}

// The console ends in order with the terminal that it was started on.
func TestConsoleEndsWithItsTerminal(t *testing.T) {
	t.Parallel()
	_, url := ownFile(t)
	tty := commandtest.NewTerminal(t)
	cmd := tty.Attach(commandtest.Command(t, "console", "--listen", "127.0.0.1:0", "--url", url)).Start()
	tty.WaitFor("token: ")
	tty.Hangup()
	if r := cmd.Wait(); r.Code != 0 || r.Took > 30*time.Second {
		t.Error(r)
	}
}
