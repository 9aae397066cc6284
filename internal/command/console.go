package command

import (
	"context"
	"crypto/rand"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/internal/console"
)

const (
	envConsoleToken     = "LOCKER_CONSOLE_TOKEN"
	envConsoleReadToken = "LOCKER_CONSOLE_READ_TOKEN"
)

// consoleFlags are the flags of locker console.
type consoleFlags struct {
	listen     string
	tokenFile  string
	readFile   string
	allowBreak bool
	every      time.Duration
	hosts      []string
	cert, key  string
}

func newConsole(a *app) *cobra.Command {
	var f consoleFlags
	cmd := &cobra.Command{
		Use:   "console",
		Short: "Serve a page that shows all queues live",
		Long: `Serve a web page with the queues of one store or several (repeat --url), live:
holders, waiters in order, ages, leases, grants per second. It polls each store about
once a second while somebody looks at the page, and not at all otherwise.

The page asks for a token: that of --token-file or of
` + envConsoleToken + `, of at least ` + fmt.Sprint(console.MinToken) + ` characters; without either a random one is made and
printed. The page is read-only unless --allow-break is given: then those who have
the token can break locks. With a second token, that of --read-token-file or of
` + envConsoleReadToken + `, one can only look. Logins and breaks are
logged to standard error, with the name that people may give when they log in.

It listens on this machine only. To let other machines in, set --listen, and --tls-cert
and --tls-key, or use a proxy with TLS. --host is the host name that browsers then use,
if it is not an IP address.`,
		Example: `  locker console --url redis://localhost:6379
  locker console --url redis://localhost:6379 --url etcd://localhost:2379 --allow-break
  locker console --listen 10.0.0.5:7070 --tls-cert cert.pem --tls-key key.pem --host locks.example`,
		Args: arguments(0, 0),
		RunE: func(cmd *cobra.Command, _ []string) error { return a.console(cmd.Context(), f) },
	}
	flags := cmd.Flags()
	flags.StringVar(&f.listen, "listen", "127.0.0.1:7070", "`ADDRESS` to listen on; port 0 takes a free one")
	flags.StringVar(&f.tokenFile, "token-file", "", "`FILE` that holds the token")
	flags.StringVar(&f.readFile, "read-token-file", "", "`FILE` that holds a second token, of those who only look")
	flags.BoolVar(&f.allowBreak, "allow-break", false, "let those who have the token break locks")
	f.every = console.DefaultEvery
	addDuration(flags, &f.every, "every", "", "shortest `DURATION` between two polls of a store")
	flags.StringArrayVar(&f.hosts, "host", nil, "`NAME` by which browsers reach the console, besides localhost and IP addresses")
	flags.StringVar(&f.cert, "tls-cert", "", "`FILE` with the certificate, in PEM: serve https")
	flags.StringVar(&f.key, "tls-key", "", "`FILE` with its key")
	return cmd
}

// console serves until ctx ends.
func (a *app) console(ctx context.Context, f consoleFlags) (err error) {
	if _, _, err := net.SplitHostPort(f.listen); err != nil {
		return usage(fmt.Errorf("--listen: %w: want HOST:PORT, such as 127.0.0.1:7070", err))
	}
	token, read, random, err := f.tokens()
	if err != nil {
		return err
	}
	config, err := f.tls()
	if err != nil {
		return err
	}
	urls, err := a.storeURLs()
	if err != nil {
		return err
	}
	var closing errgroup.Group
	defer func() { err = errors.Join(err, closing.Wait()) }()
	var stores []console.Store
	for _, u := range urls {
		c, err := openURL(ctx, u, locker.WithAnswerTimeout(5*time.Second)) // the page says soon that a store is away
		if err != nil {
			return err
		}
		defer closing.Go(c.Close) // all at once: each may wait for its store
		stores = append(stores, console.Store{Name: storeTitle(u), Source: c})
	}
	logger := a.logger()
	con, err := console.New(stores, console.Options{
		Token: token, ReadToken: read, AllowBreak: f.allowBreak, Hosts: f.hosts, Every: f.every,
		Logger: logger,
	})
	if err != nil {
		return usage(err)
	}
	defer con.Close()
	ln, err := new(net.ListenConfig).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return exit(ExitFailure, err, "--listen with another address or port")
	}
	if config != nil {
		ln = tls.NewListener(ln, config)
	}
	if a.announce(ln.Addr(), stores, config != nil, f.allowBreak, random); a.out.err != nil {
		return ln.Close()
	}
	gone := make(chan os.Signal, 1)
	notify(gone, droppable...)
	defer signal.Stop(gone)
	return serveConsole(ctx, ln, con, logger)
}

// logger writes to standard error, JSON under --json.
func (a *app) logger() *slog.Logger {
	if a.json {
		return slog.New(slog.NewJSONHandler(a.Err, nil))
	}
	return slog.New(slog.NewTextHandler(a.Err, nil))
}

// tokens returns the token, and again as random if it was made here, and that of those
// who only look, or "".
func (f *consoleFlags) tokens() (token, read, random string, err error) {
	token, set, err := tokenFrom("--token-file", f.tokenFile, envConsoleToken)
	if err != nil {
		return "", "", "", err
	}
	if !set {
		token = rand.Text()
		random = token
	}
	read, set, err = tokenFrom("--read-token-file", f.readFile, envConsoleReadToken)
	if err == nil && set && read == "" { // the console would take it for none
		err = usage(fmt.Errorf("%s is empty", envConsoleReadToken))
	}
	return token, read, random, err
}

// tokenFrom returns the token of a flag's file, else that of a variable, if there is one.
func tokenFrom(flag, file, variable string) (token string, set bool, err error) {
	if file == "" {
		token, set = os.LookupEnv(variable)
		return strings.TrimSpace(token), set, nil
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return "", false, usage(fmt.Errorf("%s: %w", flag, err))
	}
	token = strings.TrimSpace(string(text))
	if token == "" {
		return "", false, usage(fmt.Errorf("%s: %s is empty", flag, file))
	}
	return token, true, nil
}

// tls is nil without a certificate.
func (f *consoleFlags) tls() (*tls.Config, error) {
	if f.cert == "" && f.key == "" {
		return nil, nil //nolint:nilnil // no TLS is no error
	}
	if f.cert == "" || f.key == "" {
		return nil, usage(errors.New("--tls-cert and --tls-key go together"))
	}
	pair, err := tls.LoadX509KeyPair(f.cert, f.key)
	if err != nil {
		return nil, usage(fmt.Errorf("--tls-cert, --tls-key: %w", err))
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12, NextProtos: []string{"h2", "http/1.1"}}, nil
}

// storeTitle is a store's URL without credentials, and the prefix if it has one:
// two stores may lie in one server.
func storeTitle(text string) string {
	u, _ := driver.ParseURL(text) // it has been opened
	if prefix := u.Param("prefix", ""); prefix != "" {
		return u.Redacted() + " " + prefix
	}
	return u.Redacted()
}

// announcement is what the console says when it listens.
type announcement struct {
	URL        string   `json:"url"`
	Token      string   `json:"token,omitempty"` // if it is a random one
	AllowBreak bool     `json:"allow_break"`
	Stores     []string `json:"stores"`
}

func (a *app) announce(addr net.Addr, stores []console.Store, secure, allowBreak bool, random string) {
	n := announcement{URL: consoleURL(addr, secure), Token: random, AllowBreak: allowBreak}
	for _, s := range stores {
		n.Stores = append(n.Stores, s.Name)
	}
	if tcp, ok := addr.(*net.TCPAddr); ok && !tcp.IP.IsLoopback() && !secure {
		a.say("others can reach the console, and read the token on its way: give it --tls-cert and --tls-key, or a proxy with TLS")
	}
	a.print(n, func(w io.Writer) {
		rights := "read-only"
		if allowBreak {
			rights = "locks can be broken"
		}
		fmt.Fprintf(w, "console: %s (%s, %s)\n", n.URL, count(len(stores), "store", "stores"), rights)
		if random != "" {
			fmt.Fprintf(w, "  token: %s\n", random)
		}
	})
}

func consoleURL(addr net.Addr, secure bool) string {
	scheme := "http"
	if secure {
		scheme = "https"
	}
	host, port, _ := net.SplitHostPort(addr.String()) // it listens there
	if ip := net.ParseIP(host); ip.IsUnspecified() {
		host = "localhost"
	}
	return scheme + "://" + net.JoinHostPort(host, port)
}

// serveConsole serves until ctx ends.
func serveConsole(ctx context.Context, ln net.Listener, con *console.Console, logger *slog.Logger) error {
	srv := &http.Server{
		Handler: con, ErrorLog: slog.NewLogLogger(logger.Handler(), slog.LevelWarn),
		ReadHeaderTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		MaxHeaderBytes: 32 << 10,
	}
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ln) }()
	select {
	case err := <-served:
		return err
	case <-ctx.Done():
	}
	con.Close() // its streams would go on for ever
	bound, cancel := context.WithTimeout(context.WithoutCancel(ctx), 3*time.Second)
	defer cancel()
	err := srv.Shutdown(bound)
	if err != nil {
		err = errors.Join(err, srv.Close())
	}
	if end := <-served; !errors.Is(end, http.ErrServerClosed) {
		err = errors.Join(err, end)
	}
	return err
}
