package main

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/examples/internal/scenariotest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDocumentStaysWhole(t *testing.T) {
	scenariotest.Run(t, run, func(t *testing.T, r result) {
		const edits = writers * turns
		if d := r.without; d.pages[0] == edits && d.torn == 0 {
			t.Errorf("without a lock: %d of %d edits are there, %d reads are torn: nothing went wrong", d.pages[0], edits, d.torn)
		}
		if d := r.with; d.pages != [3]int{edits, edits, edits} || d.torn != 0 {
			t.Errorf("with the lock: after %d edits the pages are of %v, %d reads are torn", edits, d.pages, d.torn)
		}
		if r.with.most < 2 {
			t.Error("the lock lets in one reader at a time")
		}
	})
}
