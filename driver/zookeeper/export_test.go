package zookeeper

// WithVersion makes a driver that speaks another protocol version.
func WithVersion(v string) Option {
	return func(d *Driver) error {
		d.version = v
		return nil
	}
}
