package zookeeper

// WithVersion makes a driver that speaks another protocol version.
func WithVersion(v string) Option {
	return func(o *options) error {
		o.version = v
		return nil
	}
}
