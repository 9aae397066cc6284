// Package redis keeps locks in Redis or Valkey.
package redis
