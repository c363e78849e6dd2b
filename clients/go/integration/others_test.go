package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

// What the tests of bsm/redislock, rueidislock and redsync ask for, and what users of them have reported, as far as the other files do not
// have it. Left out: metadata, several keys by one script, a failing Scripter, force, majorities, quorums of servers.

func TestOneOfManyTriesSucceeds(t *testing.T) {
	s := testserver.Start(t)
	all := []*redislock.Locks{process(t, s), process(t, s), process(t, s)}
	var held atomic.Int32
	var group sync.WaitGroup
	for n := range 100 {
		group.Go(func() {
			hold, err := all[n%3].TryLock(context.Background(), "door", redislock.Lease(time.Minute))
			if err == nil {
				held.Add(1)
				_ = hold
				return
			}
			is(t, err, redislock.ErrTimeout)
		})
	}
	group.Wait()
	equal(t, held.Load(), 1)
}

func TestEachHoldHasItsToken(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	seen := map[string]bool{}
	for range 20 {
		hold := lock(t, locks, "door")
		seen[s.Do("GET", "door")] = true
		ok(t, hold.Release(context.Background()))
	}
	equal(t, len(seen), 20)
}

func TestExpiredLockIsLost(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	extended := lock(t, locks, "door", redislock.Lease(50*time.Millisecond))
	released := lock(t, locks, "shelf", redislock.Lease(50*time.Millisecond))
	ok(t, extended.Extend(context.Background(), 60*time.Millisecond))
	time.Sleep(100 * time.Millisecond)
	taken := lock(t, other, "door")
	is(t, extended.Extend(context.Background(), time.Minute), redislock.ErrLost)
	is(t, extended.Release(context.Background()), redislock.ErrLost)
	is(t, released.Release(context.Background()), redislock.ErrLost)
	// The late release has taken nothing from the next holder.
	equal(t, s.Info("door", "state"), "mutex")
	ok(t, taken.Release(context.Background()))
}

func TestExtensionSetsTheLease(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door", redislock.Lease(time.Hour))
	ok(t, hold.Extend(context.Background(), 100*time.Millisecond))
	soon(t, hold.Lost())
	nothingLeft(t, s, "door")
}

func TestPatienceIsLongerThanTheLease(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	hold := lock(t, locks, "door")
	results := waiting(t, s, other, within(t, 10*time.Second), "door", 1, redislock.Lease(100*time.Millisecond))
	time.Sleep(time.Second)
	ok(t, hold.Release(context.Background()))
	r := soon(t, results)
	ok(t, r.err)
	ok(t, r.hold.Release(context.Background()))
}

func TestWaitHasNoNumberOfAttempts(t *testing.T) {
	s := testserver.Plain(t)
	s.Do("SET", "door", "other", "PX", "4000")
	at := time.Now()
	ok(t, lock(t, process(t, s), "door").Release(context.Background()))
	// Polling, with pauses of 100 ms: that are more than 32 attempts.
	took(t, at, 3500*time.Millisecond, 5*time.Second)
}

func TestEndOfParentEndsTheWorkAlone(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door")
	parent, cancel := context.WithCancel(context.Background())
	ctx, stop := hold.Context(parent)
	defer stop()
	cancel()
	soon(t, ctx.Done())
	is(t, context.Cause(ctx), context.Canceled)
	equal(t, s.Info("door", "state"), "mutex")
	ok(t, hold.Release(context.Background()))
}

func TestCloseEndsTheWork(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	hold := lock(t, locks, "door")
	ctx, stop := hold.Context(context.Background())
	defer stop()
	ok(t, locks.Close(context.Background()))
	soon(t, ctx.Done())
}

func TestLongJobKeepsItsLock(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	err := locks.Do(context.Background(), "job", func(ctx context.Context) error {
		for range 10 {
			time.Sleep(100 * time.Millisecond)
			_, err := other.TryLock(context.Background(), "job")
			is(t, err, redislock.ErrTimeout)
		}
		return ctx.Err()
	}, redislock.Lease(300*time.Millisecond), redislock.Renew())
	ok(t, err)
}

func TestForeignTypeIsAnErrorAtOnce(t *testing.T) {
	s := testserver.Start(t)
	s.Do("LPUSH", "door", "a")
	_, err := process(t, s).Lock(context.Background(), "door")
	if err == nil || !has(err.Error(), "WRONGTYPE") {
		t.Fatal(err)
	}
}

func TestKilledConnectionsWhileAllDoAllKeepOneHolder(t *testing.T) {
	s := testserver.Start(t)
	all := []*redislock.Locks{process(t, s), process(t, s)}
	var inside atomic.Int32
	var group sync.WaitGroup
	until := time.Now().Add(3 * time.Second)
	group.Go(func() {
		for time.Now().Before(until) {
			time.Sleep(100 * time.Millisecond)
			s.Cut()
		}
	})
	for n := range 20 {
		group.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n+1)*20*time.Millisecond)
				hold, err := all[n%2].Lock(ctx, "door")
				cancel()
				if err != nil {
					continue
				}
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				_ = hold.Release(context.Background())
			}
		})
	}
	group.Wait()
	nothingLeft(t, s, "door")
}
