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
	srv := newCabinet(t)
	conformance.Run(t, conformance.Harness{
		Open: func(context.Context) (driver.Driver, error) { return cabinet.New(srv.Addr()) },
		OpenLink: func(context.Context) (driver.Driver, conformance.Link, error) {
			p := link.NewProxy(t, srv.Addr())
			d, err := cabinet.New(p.Addr())
			return d, p, err
		},
		Server:   srv,
		Keys:     func(context.Context) (int, error) { return srv.count("locker"), nil },
		Complete: true,
	})
}
