package integration

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/alicebob/miniredis/v2"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

// plainServers are a server without the module, and miniredis, with which programs are tested.
func plainServers(t *testing.T, run func(t *testing.T, locks func() *redislock.Locks, del func(name string))) {
	t.Run("server", func(t *testing.T) {
		s := testserver.Plain(t)
		run(t, func() *redislock.Locks { return process(t, s) }, func(name string) { s.Do("DEL", name) })
	})
	t.Run("miniredis", func(t *testing.T) {
		mini := miniredis.RunT(t)
		run(t, func() *redislock.Locks {
			locks, err := redislock.Open("redis://" + mini.Addr())
			ok(t, err)
			t.Cleanup(func() { _ = locks.Close(within(t, time.Second)) })
			return locks
		}, func(name string) { mini.Del(name) })
	})
}

func TestLocksWorkWithoutTheModule(t *testing.T) {
	plainServers(t, func(t *testing.T, open func() *redislock.Locks, del func(string)) {
		locks, other := open(), open()
		for _, opts := range [][]redislock.Option{{}, {redislock.Reentrant("o")}} {
			hold := lock(t, locks, "door", opts...)
			_, err := other.TryLock(context.Background(), "door")
			is(t, err, redislock.ErrTimeout)
			_, err = other.Lock(within(t, 100*time.Millisecond), "door")
			is(t, err, redislock.ErrTimeout, context.DeadlineExceeded)
			ok(t, hold.Extend(context.Background(), time.Minute))
			time.AfterFunc(100*time.Millisecond, func() { _ = hold.Release(context.Background()) })
			at := time.Now()
			next := lock(t, other, "door")
			took(t, at, 90*time.Millisecond, time.Second)
			del("door")
			is(t, next.Release(context.Background()), redislock.ErrLost)
		}
		var inside, most atomic.Int32
		var group sync.WaitGroup
		for n := range 30 {
			group.Go(func() {
				use := locks
				if n%2 == 0 {
					use = other
				}
				if err := use.Do(context.Background(), "door", func(context.Context) error {
					most.Store(max(most.Load(), inside.Add(1)))
					inside.Add(-1)
					return nil
				}); err != nil {
					t.Error(err)
				}
			})
		}
		group.Wait()
		equal(t, most.Load(), 1)
	})
}

func TestFeaturesOfTheModuleNeedIt(t *testing.T) {
	plainServers(t, func(t *testing.T, open func() *redislock.Locks, _ func(string)) {
		locks := open()
		for _, opt := range []redislock.Option{redislock.Session(), redislock.Shared(), redislock.Permits(3)} {
			_, err := locks.Lock(context.Background(), "door", opt)
			is(t, err, redislock.ErrModuleNeeded)
		}
		hold := lock(t, locks, "door")
		_, err := hold.Fence(context.Background())
		is(t, err, redislock.ErrModuleNeeded)
		ok(t, hold.Release(context.Background()))
	})
}

func TestLossIsSeenWithoutTheModule(t *testing.T) {
	s := testserver.Plain(t)
	for _, opts := range [][]redislock.Option{{}, {redislock.Reentrant("o")}} {
		locks := process(t, s)
		hold := lock(t, locks, "door", opts...)
		lost := hold.Lost()
		ok(t, hold.Extend(context.Background(), time.Minute))
		s.Do("DEL", "door")
		soon(t, lost)
		ok(t, locks.Close(context.Background()))
	}
	seen := make(chan string, 10)
	ctx, cancel := context.WithCancel(context.Background())
	locks := process(t, s)
	go func() {
		defer close(seen)
		for label := range locks.Observe(ctx, "door") {
			seen <- label
		}
	}()
	equal(t, soon(t, seen), "")
	hold := lock(t, locks, "door", redislock.Label("one"), redislock.Reentrant("o"))
	equal(t, soon(t, seen), "one")
	ok(t, hold.Release(context.Background()))
	equal(t, soon(t, seen), "")
	cancel()
	<-seen
}

func TestHoldersWithAndWithoutExclude(t *testing.T) {
	s := testserver.Start(t)
	token := "somebody"
	at := time.Now()
	s.Do("SET", "door", token, "NX", "PX", "200")
	hold := lock(t, process(t, s), "door")
	took(t, at, 150*time.Millisecond, time.Second)
	equal(t, s.Do("SET", "door", token, "NX", "PX", "200"), "")
	ok(t, hold.Release(context.Background()))
}
