// Package redlock keeps locks on a majority of independent Redis servers.
package redlock
