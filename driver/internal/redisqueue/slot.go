package redisqueue

import (
	"strconv"
	"strings"
	"sync"
)

// slots is how many hash slots a Redis Cluster has.
const slots = 16384

// Slot returns the hash slot of a key (Redis Cluster specification, "Hash
// tags").
func Slot(key string) uint16 {
	if i := strings.IndexByte(key, '{'); i >= 0 {
		if n := strings.IndexByte(key[i+1:], '}'); n > 0 {
			key = key[i+1 : i+1+n]
		}
	}
	return crc16(key) % slots
}

// crc16 is CRC-16/XMODEM.
func crc16(s string) uint16 {
	table := crcTable()
	var crc uint16
	for i := range len(s) {
		crc = crc<<8 ^ table[byte(crc>>8)^s[i]]
	}
	return crc
}

var crcTable = sync.OnceValue(func() *[256]uint16 {
	var t [256]uint16
	for i := range t {
		crc := uint16(i) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
		t[i] = crc
	}
	return &t
})

// tagOf returns a number whose text in base 36 is in the given slot.
func tagOf(slot uint16) uint32 { return tags()[slot] }

var tags = sync.OnceValue(func() *[slots]uint32 {
	var t [slots]uint32
	for n, left := uint32(1), slots; left > 0; n++ {
		s := crc16(strconv.FormatUint(uint64(n), 36)) % slots
		if t[s] == 0 {
			t[s] = n
			left--
		}
	}
	return &t
})
