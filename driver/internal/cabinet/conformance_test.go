package cabinet_test

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/conformance/link"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/driver/internal/cabinet"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	if testing.Short() {
		conformance.Run(t, inBubbles())
		return
	}
	h := harness(t)
	h.NewServer = func(context.Context) (conformance.Harness, error) { return harness(t), nil }
	conformance.Run(t, h)
}

func harness(t *testing.T) conformance.Harness {
	srv := newCabinet(t)
	return conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) { return cabinet.New(srv.Addr()) },
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			p := link.NewProxy(t, srv.Addr())
			d, err := cabinet.New(p.Addr())
			return d, p, err
		},
		Server:   srv,
		Keys:     func(context.Context) (int, error) { return srv.count("locker"), nil },
		AtOnce:   32, // hardly any of them keeps it busy
		Complete: true,
	}
}
