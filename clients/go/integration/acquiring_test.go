package integration

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func TestHeldLockIsATimeout(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	hold := lock(t, locks, "door", redislock.Label("billing"))
	equal(t, s.Info("door", "owner")[:8], "billing:")
	at := time.Now()
	_, err := other.TryLock(context.Background(), "door")
	is(t, err, redislock.ErrTimeout)
	isNot(t, err, context.DeadlineExceeded)
	took(t, at, 0, shortly)
	at = time.Now()
	_, err = other.Lock(within(t, 100*time.Millisecond), "door")
	is(t, err, redislock.ErrTimeout, context.DeadlineExceeded)
	took(t, at, 100*time.Millisecond, 500*time.Millisecond)
	var failure *redislock.LockError
	if !errors.As(err, &failure) || failure.Name != "door" || failure.Op != "acquire" {
		t.Fatal(err)
	}
	equal(t, s.Info("door", "waiters"), "0")
	ok(t, hold.Release(context.Background()))
	ok(t, hold.Release(context.Background()))
	nothingLeft(t, s, "door")
}

func TestDoneContextSendsNothing(t *testing.T) {
	s := testserver.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := process(t, s).Lock(ctx, "door")
	is(t, err, redislock.ErrTimeout, context.Canceled)
	equal(t, s.Calls("lock.acquire"), 0)
}

func TestEndedContextKeepsHold(t *testing.T) {
	s := testserver.Start(t)
	ctx, cancel := context.WithCancel(context.Background())
	hold, err := process(t, s).Lock(ctx, "door")
	ok(t, err)
	cancel()
	time.Sleep(20 * time.Millisecond)
	equal(t, s.Info("door", "state"), "mutex")
	// It is sent although the context has ended, and is not awaited: the reply may be there already.
	if err := hold.Release(ctx); err != nil {
		is(t, err, context.Canceled)
	}
	nothingLeft(t, s, "door")
}

func TestCancelledWaitsLeaveNothing(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	for n := range 200 {
		hold := lock(t, locks, "door")
		ctx, cancel := context.WithCancel(context.Background())
		results := waiting(t, s, other, ctx, "door", 1)
		// The grant and the end of the wait meet.
		time.AfterFunc(time.Duration(n%20)*10*time.Microsecond, cancel)
		ok(t, hold.Release(context.Background()))
		if r := soon(t, results); r.err == nil {
			ok(t, r.hold.Release(context.Background()))
		} else {
			is(t, r.err, redislock.ErrTimeout, context.Canceled)
		}
		cancel()
		nothingLeft(t, s, "door")
	}
}

func TestWaitersAreServedInOrder(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door")
	var mu sync.Mutex
	var order []int
	var group sync.WaitGroup
	for n := range 5 {
		results := waiting(t, s, process(t, s), context.Background(), "door", n+1)
		group.Go(func() {
			r := <-results
			mu.Lock()
			order = append(order, n)
			mu.Unlock()
			if err := r.hold.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	ok(t, hold.Release(context.Background()))
	group.Wait()
	equal(t, fmt.Sprint(order), "[0 1 2 3 4]")
}

func TestThousandWaitersAreOneAtTheServer(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	hold := lock(t, process(t, s), "door")
	var inside, most atomic.Int32
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() {
			err := locks.Do(context.Background(), "door", func(context.Context) error {
				most.Store(max(most.Load(), inside.Add(1)))
				inside.Add(-1)
				return nil
			})
			if err != nil {
				t.Error(err)
			}
		})
	}
	testserver.Eventually(t, "a waiter", func() bool { return s.Info("door", "waiters") == "1" })
	before := s.Calls("lock.acquire")
	time.Sleep(300 * time.Millisecond)
	equal(t, s.Calls("lock.acquire"), before)
	equal(t, len(s.Connections()), 2)
	ok(t, hold.Release(context.Background()))
	group.Wait()
	equal(t, most.Load(), 1)
	nothingLeft(t, s, "door")
}

func TestFullQueueIsAnError(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	hold := lock(t, locks, "door")
	results := waiting(t, s, other, context.Background(), "door", 1)
	_, err := other.Lock(context.Background(), "door", redislock.MaxWaiters(1))
	is(t, err, redislock.ErrQueueFull)
	_, err = process(t, s).Lock(context.Background(), "door", redislock.MaxWaiters(1))
	is(t, err, redislock.ErrQueueFull)
	ok(t, hold.Release(context.Background()))
	ok(t, soon(t, results).hold.Release(context.Background()))
}

func TestSharesAndPermitsExclude(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	one, two := lock(t, locks, "page", redislock.Shared()), lock(t, other, "page", redislock.Shared())
	_, err := locks.TryLock(context.Background(), "page")
	is(t, err, redislock.ErrTimeout)
	writer := waiting(t, s, locks, context.Background(), "page", 1)
	ok(t, one.Release(context.Background()))
	ok(t, two.Release(context.Background()))
	ok(t, soon(t, writer).hold.Release(context.Background()))
	var inside, most atomic.Int32
	var group sync.WaitGroup
	for range 100 {
		group.Go(func() {
			hold := lock(t, locks, "pool", redislock.Permits(3))
			most.Store(max(most.Load(), inside.Add(1)))
			time.Sleep(time.Millisecond)
			inside.Add(-1)
			if err := hold.Release(context.Background()); err != nil {
				t.Error(err)
			}
		})
	}
	group.Wait()
	equal(t, most.Load(), 3)
	nothingLeft(t, s, "pool")
}

func TestOwnerAcquiresItsLockAgain(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	one, two := lock(t, locks, "door", redislock.Reentrant("job-1")), lock(t, locks, "door", redislock.Reentrant("job-1"))
	_, err := locks.TryLock(context.Background(), "door", redislock.Reentrant("job-2"))
	is(t, err, redislock.ErrTimeout)
	ok(t, one.Release(context.Background()))
	ok(t, one.Release(context.Background()))
	equal(t, s.Info("door", "state"), "reentrant")
	_, err = two.Detach()
	ok(t, err)
	s.Do("DEL", "door")
	one = lock(t, locks, "door", redislock.Reentrant("job-1"))
	s.Do("DEL", "door")
	soon(t, one.Lost())
	_, err = locks.Lock(context.Background(), "door", redislock.Reentrant("job-1"))
	is(t, err, redislock.ErrLost)
	is(t, one.Release(context.Background()), redislock.ErrLost)
	ok(t, lock(t, locks, "door", redislock.Reentrant("job-1")).Release(context.Background()))
}

func TestOwnerWithManyGoroutinesLosesNothing(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for range 100 {
				hold, err := locks.Lock(context.Background(), "door", redislock.Reentrant([]string{"a", "b"}[n%2]), redislock.Lease(time.Minute))
				if err == nil {
					err = hold.Release(context.Background())
				}
				if err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	nothingLeft(t, s, "door")
}

func TestDetachedLockIsAttached(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door")
	token, err := hold.Detach()
	ok(t, err)
	is(t, hold.Release(context.Background()), redislock.ErrLost)
	other := process(t, s)
	taken, err := other.Attach(context.Background(), "door", token, redislock.Lease(time.Minute), redislock.Session())
	ok(t, err)
	_, err = taken.Detach()
	is(t, err, redislock.ErrArgument)
	ok(t, taken.Release(context.Background()))
	_, err = other.Attach(context.Background(), "door", token)
	is(t, err, redislock.ErrLost)
}

func TestSeveralAreAllOrNone(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	b := lock(t, other, "b")
	_, err := locks.Several(within(t, 50*time.Millisecond), []string{"c", "b", "a"})
	is(t, err, redislock.ErrTimeout)
	nothingLeft(t, s, "a")
	ok(t, b.Release(context.Background()))
	_, err = locks.Several(context.Background(), []string{"c", "b", "b"})
	is(t, err, redislock.ErrArgument)
	all, err := locks.Several(context.Background(), []string{"c", "b", "a"})
	ok(t, err)
	equal(t, all.Name(), "a, b, c")
	ctx, stop := all.Context(context.Background())
	defer stop()
	s.Do("DEL", "b")
	soon(t, ctx.Done())
	soon(t, all.Lost())
	is(t, context.Cause(ctx), redislock.ErrLost)
	_, err = all.Fence(context.Background())
	is(t, err, redislock.ErrArgument)
	is(t, all.Release(context.Background()), redislock.ErrLost)
	nothingLeft(t, s, "a")
	nothingLeft(t, s, "c")
}

func TestObserverSeesEachHolder(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	ctx, cancel := context.WithCancel(context.Background())
	seen := make(chan string, 10)
	go func() {
		defer close(seen)
		for label, err := range other.Observe(ctx, "leader") {
			if err != nil {
				t.Error(err)
			}
			seen <- label
		}
	}()
	equal(t, soon(t, seen), "")
	hold := lock(t, locks, "leader", redislock.Session(), redislock.Label("one"))
	equal(t, soon(t, seen), "one")
	ok(t, hold.Release(context.Background()))
	equal(t, soon(t, seen), "")
	lock(t, locks, "leader", redislock.Lease(200*time.Millisecond), redislock.Label("two"))
	equal(t, soon(t, seen), "two")
	equal(t, soon(t, seen), "")
	cancel()
	<-seen
}

func TestBlockReleasesWhateverHappens(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	broken := errors.New("broken")
	err := locks.Do(context.Background(), "door", func(context.Context) error { return broken })
	is(t, err, broken)
	equal(t, s.Info("door", "state"), "free")
	func() {
		defer func() { equal(t, recover(), any("panic")) }()
		_ = locks.Do(context.Background(), "door", func(context.Context) error { panic("panic") })
	}()
	equal(t, s.Info("door", "state"), "free")
	ctx, cancel := context.WithCancel(context.Background())
	err = locks.Do(ctx, "door", func(ctx context.Context) error {
		cancel()
		return ctx.Err()
	})
	is(t, err, context.Canceled)
	equal(t, s.Info("door", "state"), "free")
	err = locks.Do(context.Background(), "door", func(ctx context.Context) error {
		s.Do("DEL", "door")
		<-ctx.Done()
		is(t, context.Cause(ctx), redislock.ErrLost)
		return broken
	})
	is(t, err, broken, redislock.ErrLost)
}

func TestFencingTokensRise(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	var all []int64
	for range 3 {
		hold := lock(t, locks, "door")
		token, err := hold.Fence(context.Background())
		ok(t, err)
		all = append(all, token)
		ok(t, hold.Release(context.Background()))
		_, err = hold.Fence(context.Background())
		is(t, err, redislock.ErrLost)
	}
	if !slices.IsSorted(all) || all[0] == all[2] {
		t.Fatal(all)
	}
}

func TestCollectedHoldIsReleased(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	lock(t, locks, "door")
	runtime.GC()
	nothingLeft(t, s, "door")
	lock(t, locks, "shelf", redislock.Lease(time.Minute))
	runtime.GC()
	time.Sleep(20 * time.Millisecond)
	equal(t, s.Info("shelf", "state"), "mutex")
}

func TestCloseReleasesWhatIsHeld(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	hold := lock(t, locks, "door")
	shelf := lock(t, locks, "shelf", redislock.Lease(time.Minute))
	ok(t, locks.Close(context.Background()))
	nothingLeft(t, s, "door")
	equal(t, s.Info("shelf", "state"), "mutex")
	testserver.Eventually(t, "no connection", func() bool { return len(s.Connections()) == 0 })
	is(t, hold.Release(context.Background()), redislock.ErrLost)
	at := time.Now()
	is(t, shelf.Release(context.Background()), redislock.ErrUnavailable)
	took(t, at, 0, shortly)
	_, err := locks.Lock(within(t, 100*time.Millisecond), "door")
	is(t, err, redislock.ErrUnavailable)
}
