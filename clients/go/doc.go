// Package redislock has locks in Redis and Valkey. With the server module redis-lock, waiters are in a fair queue, and get the lock the
// moment it is free. On a server without the module the same locks work by scripts and polling.
//
// A context is the patience of a wait, and nothing else: a lock is held until it is released. [Locks.Do] and [Hold.Context] tie work to the
// hold: their contexts end when the lock is lost.
//
// The package opens a connection of its own, with the settings of a client of go-redis, rueidis or valkey-go. Hooks of the client see
// nothing of the locks.
package redislock
