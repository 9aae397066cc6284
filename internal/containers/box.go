package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/moby/moby/client"
	"github.com/testcontainers/testcontainers-go"
)

// A box is a container that faults are done to.
type box struct {
	testcontainers.Container
	client *testcontainers.DockerClient
	image  string
}

// obey does what one line of the input says.
func (b *box) obey(ctx context.Context, verb string) (string, error) {
	id := b.GetContainerID()
	var err error
	switch verb {
	case "start":
		return "", b.Start(ctx)
	case "kill":
		_, err = b.client.ContainerKill(ctx, id, client.ContainerKillOptions{Signal: "KILL"})
	case "pause":
		_, err = b.client.ContainerPause(ctx, id, client.ContainerPauseOptions{})
	case "resume":
		_, err = b.client.ContainerUnpause(ctx, id, client.ContainerUnpauseOptions{})
	case "state":
		s, err := b.State(ctx)
		if err != nil {
			return "", err
		}
		return string(s.Status), nil
	case "log":
		return b.log(ctx)
	default:
		err = fmt.Errorf("there is no %q", verb)
	}
	return "", err
}

// log returns the end of what the store has printed.
func (b *box) log(ctx context.Context) (string, error) {
	r, err := b.Logs(ctx)
	if err != nil {
		return "", err
	}
	defer r.Close()
	text, err := io.ReadAll(r)
	const most = 8 << 10
	return string(text[max(0, len(text)-most):]), err
}

func (b *box) remove(ctx context.Context) error {
	return errors.Join(b.Terminate(ctx), b.client.Close())
}
