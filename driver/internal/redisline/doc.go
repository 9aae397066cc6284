// Package redisline is the line of one lock in Redis: the scripts that keep it,
// the names of its keys, and the way to the server that callers share.
//
// The exclusive holder of a name is a plain string key, set as by
// SET key value NX PX ms, so that other clients that lock in that way are kept
// out by ours and ours by them. What else a line needs (who waits, who holds
// with others) lies in keys beside it that are there only while somebody waits
// or holds with others; lua/line.lua describes them.
//
// Scripts run by EVALSHA, and by EVAL where the server does not know them
// (yet, or since SCRIPT FLUSH, a restart or a failover). They use no command
// newer than Redis 6.2, and no clock but the server's.
package redisline
