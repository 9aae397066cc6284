package main

import "github.com/redis/go-redis/v9/logging"

// The Redis client prints every failed dial by itself; here the workers say
// what is wrong.
func init() { logging.Disable() }
