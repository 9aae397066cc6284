// Package all registers every driver of this module for locker.Open, so that
// the store is a matter of configuration alone:
//
//	import _ "github.com/lockerproject/locker/driver/all"
//
// It links the clients of all stores. A program that knows its store imports
// that one driver.
package all

import (
	_ "github.com/lockerproject/locker/compose"          // all:// fallback:// tokenbase://
	_ "github.com/lockerproject/locker/driver/consul"    // consul:// consuls://
	_ "github.com/lockerproject/locker/driver/dynamodb"  // dynamodb://
	_ "github.com/lockerproject/locker/driver/etcd"      // etcd:// etcds://
	_ "github.com/lockerproject/locker/driver/memcached" // memcached://
	_ "github.com/lockerproject/locker/driver/memory"    // memory://
	_ "github.com/lockerproject/locker/driver/mysql"     // mysql://
	_ "github.com/lockerproject/locker/driver/nats"      // nats://
	_ "github.com/lockerproject/locker/driver/postgres"  // postgres:// postgresql://
	_ "github.com/lockerproject/locker/driver/redis"     // redis:// rediss:// redis+sentinel:// redis+cluster://
	_ "github.com/lockerproject/locker/driver/redlock"   // redlock://
	_ "github.com/lockerproject/locker/driver/sqlite"    // sqlite://
	_ "github.com/lockerproject/locker/driver/zookeeper" // zookeeper:// zookeepers://
)
