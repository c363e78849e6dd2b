package examples

import (
	"context"

	"golang.org/x/sync/errgroup"

	redislock "redis-lock/clients/go"
)

// ForEach runs work for all items, at most permits at a time in all processes. The first error, or a lost permit, ends the others.
func ForEach[T any](ctx context.Context, locks *redislock.Locks, permits int, items []T, work func(context.Context, T) error) error {
	group, ctx := errgroup.WithContext(ctx)
	// More would only wait.
	group.SetLimit(permits)
	for _, item := range items {
		group.Go(func() error {
			return locks.Do(ctx, "pool", func(ctx context.Context) error { return work(ctx, item) }, redislock.Permits(permits))
		})
	}
	return group.Wait()
}
