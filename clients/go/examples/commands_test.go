package examples

import (
	"context"
	"errors"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
)

// calls has a call for each command. The site shows them on the page of the command: from such a comment to the next empty line.
func calls(ctx context.Context, locks *redislock.Locks) error {
	// LOCK.ACQUIRE
	hold, err := locks.Lock(ctx, "door", redislock.Lease(30*time.Second))
	if err != nil {
		return err
	}

	// LOCK.FENCE
	number, err := hold.Fence(ctx)

	if err != nil || number < 1 {
		return errors.Join(err, errors.New("no number"))
	}
	// LOCK.EXTEND
	err = hold.Extend(ctx, time.Minute)

	if err != nil {
		return err
	}
	// LOCK.RELEASE
	err = hold.Release(ctx)

	if err != nil {
		return err
	}
	// LOCK.REENTER
	outer, err := locks.Lock(ctx, "cellar", redislock.Reentrant("job-17"))
	if err != nil {
		return err
	}
	inner, err := locks.Lock(ctx, "cellar", redislock.Reentrant("job-17"))

	if err != nil {
		return err
	}
	// LOCK.SHARE
	reader, err := locks.Lock(ctx, "page", redislock.Shared())
	if err != nil {
		return err
	}
	permit, err := locks.Lock(ctx, "printers", redislock.Permits(3))

	if err != nil {
		return err
	}
	return errors.Join(inner.Release(ctx), outer.Release(ctx), reader.Release(ctx), permit.Release(ctx))
}

func TestCommandsHaveCalls(t *testing.T) {
	s, locks := open(t)
	if err := calls(context.Background(), locks); err != nil {
		t.Fatal(err)
	}
	if got := s.Do("EXISTS", "door", "cellar", "page", "printers"); got != "0" {
		t.Fatal(got)
	}
}
