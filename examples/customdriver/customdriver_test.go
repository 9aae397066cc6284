package customdriver_test

import (
	"context"
	"fmt"
	"log"
	"testing"

	"go.uber.org/goleak"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/conformance"
	"github.com/lockerproject/locker/driver"
	"github.com/lockerproject/locker/examples/customdriver"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestConformance proves what it can of this driver. Bubble is for stores without a
// network: waiting then takes no time. A driver of a real store also gives OpenLink,
// Server and Keys, and sets Complete.
func TestConformance(t *testing.T) {
	store := customdriver.NewStore()
	conformance.Run(t, conformance.Harness{
		Open:   func(context.Context) (driver.Driver, error) { return customdriver.New(store), nil },
		Bubble: true,
	})
}

func Example() {
	l := locker.New(customdriver.New(customdriver.NewStore()))
	defer l.Close()

	err := locker.Do(context.Background(), l, "order:42", func(context.Context) error {
		fmt.Println("shipping order 42")
		return nil
	})
	if err != nil {
		log.Print(err)
	}
	// Output: shipping order 42
}
