package mysql

import "context"

// Sweep sweeps now.
func (d *Driver) Sweep(ctx context.Context) error { return d.sweep(ctx) }
