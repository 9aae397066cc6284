// Package redisqueue is the queue of one lock in Redis, for the drivers redis (one
// server, or a Cluster) and redlock (a majority of servers): the scripts, the names of
// the keys, the connections that callers share, the subscription by which a waiter is
// notified, and the heartbeats of waiters.
//
// The exclusive holder of a name is a plain string key, set as by SET key value NX PX ms,
// so that our clients and others that lock in this way exclude each other. Waiters and
// shared holders are in keys beside it, which exist only while there are any;
// lua/queue.lua describes them, and lua/redlock_queue.lua for one node of Redlock: read
// these next. Programs of several versions share the keys: what is in them changes only with
// the version of the protocol (protocol.go).
//
// # Words
//
//	outlook    what a server answers to a request or a heartbeat: when the queue may move by itself
//	nodeState  what the heartbeats of a name know of one node
//	view       what a server answers to Inspect: its whole queue
//
// # Scripts
//
// The scripts that every lock runs, acquire and release, begin with the cases of a mutex,
// which need no functions: nobody holds, queue behind a holder, release to the next
// waiter. All other cases follow the general rule, a page of functions. Lua creates these
// functions in each run, which takes 7 µs before the first command; a command takes 0.5
// µs, and an empty script 3.5 µs. So a contended grant costs the server a quarter of what
// the general rule alone would cost.
//
// Scripts run by EVALSHA. If the server does not know a script (yet, or since SCRIPT
// FLUSH, a restart or a failover), it runs by EVAL, or all scripts are loaded first. They
// use no command newer than Redis 6.2, and no clock but the server's.
package redisqueue
