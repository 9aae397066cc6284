package mysql

import "context"

// Sweep sweeps now, as if nothing had been used for long.
func (d *Driver) Sweep(ctx context.Context) error {
	d.tidy()
	_, err := d.sweep(ctx)
	return err
}

// Turns is how many tickets a row may have, one after the other.
const Turns = turns

// SlotOf is the slot of a name.
func SlotOf(name string) uint64 { return slotOf(name) }

// Head reads the first tickets of a queue, as a decision does.
func (d *Driver) Head(ctx context.Context, name string) (ids []string, err error) {
	rows, err := d.head(ctx, name, ranks)
	for _, r := range rows {
		ids = append(ids, r.id)
	}
	return ids, err
}
