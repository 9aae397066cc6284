package main

import (
	"context"
	"testing"
	"time"
)

func TestSellsWhatThereIs(t *testing.T) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	if err := run(ctx, "memory://quickstart-test"); err != nil {
		t.Fatal(err)
	}
	if err := run(ctx, "nosuch://"); err == nil {
		t.Error("no error for an unknown store")
	}
}
