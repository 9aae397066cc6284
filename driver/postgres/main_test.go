package postgres_test

import (
	"testing"
	"time"

	"github.com/lockerproject/locker/internal/testmain"
)

// pgx gives a busy server 15 s to answer that a request was cancelled, after Close has returned.
func TestMain(m *testing.M) { testmain.RunWithin(m, 20*time.Second) }
