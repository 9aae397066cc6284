package postgres

import "context"

// Sweep is what a driver does now and then.
func (d *Driver) Sweep(ctx context.Context) { d.sweep(ctx) }

// Code is the SQLSTATE of an error.
func Code(err error) string { return code(err) }
