package examples

import (
	"context"
	"errors"
	"time"

	redislock "redis-lock/clients/go"
)

// Lead runs work in one of many processes at a time, until ctx ends. If the process of the leader ends, however it ends, another one takes
// over a second later; label is what Locks.Observe shows of it. The context of work ends when the leader has lost the lock.
func Lead(ctx context.Context, locks *redislock.Locks, label string, work func(ctx context.Context) error) error {
	for {
		err := locks.Do(ctx, "leader", work, redislock.Session(), redislock.Label(label))
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case errors.Is(err, redislock.ErrLost) || errors.Is(err, redislock.ErrUnavailable):
			time.Sleep(100 * time.Millisecond)
		default:
			return err
		}
	}
}
