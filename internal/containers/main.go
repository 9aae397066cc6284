// Command containers runs one store in a container, for internal/testbed:
//
//	containers -port 12345 [-env NAME=VALUE]... STORE [ARGUMENT...]
//
// It makes the container, whose store will be at that port of the loopback, and
// answers with a line of JSON. From then on it obeys the lines of its standard
// input, each of which it answers in the same way: start, kill, pause, resume,
// state, log. When its input ends, it removes the container.
//
// The images are those of docker-compose.yml. It is a program and a module of
// its own, so that nobody who uses or tests locker depends on
// testcontainers-go, unless there is no other way to a server.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/testcontainers/testcontainers-go"
)

// An answer is a line of the output.
type answer struct {
	Out   string `json:"out,omitempty"`
	Error string `json:"error,omitempty"`
}

func main() {
	// Ctrl-C at the terminal reaches this program too. It ends with its input.
	signal.Ignore(os.Interrupt)
	// Else testcontainers takes a machine with a file /.dockerenv for a
	// container, and dials the default gateway.
	if err := os.Setenv("TESTCONTAINERS_HOST_OVERRIDE", "127.0.0.1"); err != nil {
		panic(err)
	}
	if err := serve(context.Background(), os.Args[1:], os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "containers:", err)
		os.Exit(1)
	}
}

// words collects the values of a flag that may be repeated.
type words []string

func (w *words) String() string     { return strings.Join(*w, " ") }
func (w *words) Set(s string) error { *w = append(*w, s); return nil }

// serve makes a container, and removes it when in ends.
func serve(ctx context.Context, args []string, in io.Reader, out io.Writer) (err error) {
	answers := json.NewEncoder(out)
	b, err := create(ctx, args)
	if err != nil {
		return errors.Join(err, answers.Encode(answer{Error: err.Error()}))
	}
	defer func() { err = errors.Join(err, b.remove(ctx)) }()
	if err := answers.Encode(answer{Out: b.image}); err != nil {
		return err
	}
	for lines := bufio.NewScanner(in); lines.Scan(); {
		text, err := b.obey(ctx, lines.Text())
		a := answer{Out: text}
		if err != nil {
			a.Error = err.Error()
		}
		if err := answers.Encode(a); err != nil {
			return err
		}
	}
	return nil
}

// create makes the container that the arguments describe, and does not start it.
func create(ctx context.Context, args []string) (*box, error) {
	flags := flag.NewFlagSet("containers", flag.ContinueOnError)
	port := flags.Uint("port", 0, "where the store listens on the loopback")
	var env words
	flags.Var(&env, "env", "NAME=VALUE for the container's environment")
	if err := flags.Parse(args); err != nil {
		return nil, err
	}
	s, known := stores[flags.Arg(0)]
	if !known || *port == 0 || *port > 65535 {
		return nil, errors.New("usage: containers -port PORT [-env NAME=VALUE]... STORE [ARGUMENT...]")
	}
	image, err := imageOf(flags.Arg(0))
	if err != nil {
		return nil, err
	}
	client, err := testcontainers.NewDockerClientWithOpts(ctx)
	if err != nil {
		return nil, err
	}
	c, err := s.run(ctx, image, s.options(uint16(*port), env, flags.Args()[1:])...)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", image, err), client.Close())
	}
	return &box{Container: c, client: client, image: image}, nil
}
