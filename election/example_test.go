package election_test

import (
	"context"
	"fmt"

	"github.com/lockerproject/locker"
	"github.com/lockerproject/locker/driver/memory"
	"github.com/lockerproject/locker/election"
)

func ExampleElection_Run() {
	l := locker.New(memory.New())
	defer l.Close()
	e, err := election.New(l, "billing", election.WithNote("10.0.0.7:8080"))
	if err != nil {
		fmt.Println(err)
		return
	}
	bills := 3
	err = e.Run(context.Background(), func(ctx context.Context, term *election.Term) error {
		for ctx.Err() == nil { // as long as it leads
			if bills == 0 {
				return election.ErrResign
			}
			fmt.Println("bill", bills)
			bills--
		}
		return nil
	})
	fmt.Println("resigned:", err)
	// Output:
	// bill 3
	// bill 2
	// bill 1
	// resigned: <nil>
}

// Two candidates: the second one is elected when the first steps down.
func ExampleElection_Campaign() {
	ctx := context.Background()
	space := memory.New()
	var terms []*election.Term
	for _, id := range []string{"a", "b"} {
		l := locker.New(space.Join())
		defer l.Close()
		e, err := election.New(l, "billing", election.WithID(id))
		if err != nil {
			fmt.Println(err)
			return
		}
		term, err := e.Campaign(ctx)
		if err != nil {
			fmt.Println(err)
			return
		}
		leader, _ := e.Leader(ctx)
		fmt.Println(leader.Owner, "leads")
		_ = term.StepDown(ctx)
		terms = append(terms, term)
	}
	fmt.Println("tokens grow:", terms[0].Token() < terms[1].Token())
	// Output:
	// a leads
	// b leads
	// tokens grow: true
}

func ExampleElection_Observe() {
	ctx := context.Background()
	l := locker.New(memory.New())
	defer l.Close()
	e, err := election.New(l, "billing", election.WithID("a"), election.WithNote("serving on 10.0.0.7:8080"))
	if err != nil {
		fmt.Println(err)
		return
	}
	term, err := e.Campaign(ctx)
	if err != nil {
		fmt.Println(err)
		return
	}
	for leader, err := range e.Observe(ctx) {
		switch {
		case err != nil:
			fmt.Println("the store is away:", err)
			continue
		case leader.Token == 0:
			fmt.Println("nobody leads")
			return
		}
		fmt.Printf("%s leads: %s\n", leader.Owner, leader.Note)
		_ = term.StepDown(ctx)
	}
	// Output:
	// a leads: serving on 10.0.0.7:8080
	// nobody leads
}
