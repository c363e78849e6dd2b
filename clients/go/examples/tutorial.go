package examples

import (
	"context"
	"time"

	redislock "redis-lock/clients/go"
)

// Write writes with a fencing token while it holds the lock. It waits for the lock for at most 20 seconds. The tutorial shows it.
func Write(ctx context.Context, locks *redislock.Locks, write func(token int64) error) error {
	patience, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	hold, err := locks.Lock(patience, "door")
	if err != nil {
		return err
	}
	defer hold.Release(ctx)
	token, err := hold.Fence(ctx)
	if err != nil {
		return err
	}
	return write(token)
}
