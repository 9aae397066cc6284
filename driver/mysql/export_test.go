package mysql

import "context"

// Sweep sweeps now.
func (d *Driver) Sweep(ctx context.Context) error { return d.sweep(ctx) }

// SlotOf is the slot of a name.
func SlotOf(name string) uint64 { return slotOf(name) }
