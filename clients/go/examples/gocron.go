// Package examples has parts of programs to copy.
package examples

import (
	"context"

	"github.com/go-co-op/gocron/v2"

	redislock "redis-lock/clients/go"
)

// JobLocker lets one of many processes run each job of gocron, with gocron.WithDistributedLocker. Its lease is renewed while the job runs,
// however long that takes.
type JobLocker struct{ Locks *redislock.Locks }

// Lock implements gocron.Locker. A job that runs elsewhere is left out.
func (l JobLocker) Lock(ctx context.Context, key string) (gocron.Lock, error) {
	hold, err := l.Locks.TryLock(ctx, "cron:"+key)
	if err != nil {
		return nil, err
	}
	return jobLock{hold}, nil
}

type jobLock struct{ *redislock.Hold }

func (l jobLock) Unlock(ctx context.Context) error { return l.Release(ctx) }
