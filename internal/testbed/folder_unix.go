//go:build unix && !linux

package testbed

// memoryFolder returns "": only Linux is known to have a folder in memory.
func memoryFolder() string { return "" }
