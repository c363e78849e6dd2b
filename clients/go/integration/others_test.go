package integration

import (
	"context"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

// The situations of other packages' tests, and the tests here that have them.
//
//	bsm/redislock 0.9.4
//	Client, Obtain                        TestHeldLockIsATimeout
//	Obtain_custom_token                   not: a token is used once; Attach takes a lock over: TestDetachedLockIsAttached
//	Obtain_metadata                       not: a label is for people: TestHeldLockIsATimeout
//	Obtain_retry_success, _failure        TestPatienceIsLongerThanTheLease, TestHeldLockIsATimeout
//	Obtain_concurrent                     TestOneOfManyTriesSucceeds
//	Lock_Refresh                          TestExtensionSetsTheLease
//	Lock_Refresh_expired                  TestExpiredLockIsLost
//	Lock_Release_expired, _not_own        TestExpiredLockIsLost, TestLossIsReportedWithinMilliseconds/overwritten
//	Lock_Release_not_held                 not: there is no Hold without an error
//
//	rueidislock 1.0.79
//	NewLocker, WithClientBuilder          rueidis: TestOptionsGiveTheirServer
//	WithContext_MultipleLocker            TestKilledConnectionsWhileAllDoAllKeepOneHolder, TestWaitersAreServedInOrder
//	WithContext_UnlockByClientSideCaching TestLossIsReportedWithinMilliseconds/deleted
//	WithContext_ExtendByClientSideCaching otherwise: the loss is reported: TestShortenedLeaseIsALoss
//	four of ForceWithContext              not: no lock is taken from its holder; DEL does it, and the holder hears of it
//	WithContext_AutoExtend, _Concurrent   TestLongJobKeepsItsLock, TestRenewedLockOutlastsStalls
//	WithContext_DeadContext               TestDoneContextSendsNothing
//	WithContext_CancelContext, _Cleanup   TestCancelledWaitsLeaveNothing
//	WithContext_ShorterTimeoutContext     TestHeldLockIsATimeout
//	TryWithContext, _MultipleLocker       TestOneOfManyTriesSucceeds
//	ForceWithContextThenTryWithContext    not: as above
//	WithContext_MissingPeers              TestWaitersWithTheContextOfTheHoldEnd
//	Close                                 TestCloseEndsTheWork, TestCloseEndsTheWaits
//	RetryErrLockerClosed                  TestWaitGoesOnWhileServerRestarts, TestCutConnectionsLeaveNothing
//	Flush                                 TestLossIsReportedWithinMilliseconds/flushed
//
//	redsync 4.18.1
//	Mutex, TryLock                        TestOneOfManyTriesSucceeds, TestThousandWaitersAreOneAtTheServer
//	MutexAlreadyLocked                    TestHeldLockIsATimeout
//	MutexExtend, _Expired                 TestExtensionSetsTheLease, TestExpiredLockIsLost
//	two of SetNXOnExtend                  not: Extend acquires nothing
//	MutexUnlockExpired                    TestExpiredLockIsLost
//	MutexQuorum                           not: one server
//	Valid                                 TestLeaseEndsByTheLocalClock
//	MutexLockUnlockSplit                  TestDetachedLockIsAttached
//	RedisErrorIs, RedisErrorAs            TestHeldLockIsATimeout
//	Redsync                               the examples of godoc
//	Scripts_Hash                          not: a script is sent as its text
//
// What users have reported of them:
//
//	go-redis#2556, #1196   a context does not end a command       TestCallerThatReadsIsCancelled
//	go-redis#1519          a cancelled wait takes effect later    TestCancelledWaitsLeaveNothing
//	go-redis#1798          waits use up the connections           TestThousandWaitersAreOneAtTheServer
//	radix#344              cancelled waits keep connections       TestCancelledCallersLeaveRepliesToOthers
//	redigo#342             no context                             TestCancelledWaitsLeaveNothing
//	redsync#82, #118, #122 a wait ends after 32 attempts          TestWaitHasNoNumberOfAttempts
//	redsync#107, #81       the release of an expired lock is      TestExpiredLockIsLost
//	                       unclear
//	redsync#158, #144      Extend fails without a reason          TestExpiredLockIsLost, TestSilentServerIsReplaced
//	redsync#151            a failed Extend releases the lock      TestSilentServerIsReplaced
//	redislock#79           time-out and deadline are mixed up     TestOutageAtTheDeadlineIsNoTimeout, TestHeldLockIsATimeout
//	redislock#21           patience is the lease                  TestPatienceIsLongerThanTheLease
//	redislock#73           no renewal                             TestLongJobKeepsItsLock
//	redislock#81           release by a token                     TestDetachedLockIsAttached
//	rueidis#602            a waiter uses a processor              TestWaitersUseNoProcessor
//	rueidis#923            lost under load                        TestRenewedLockOutlastsStalls
//	rueidis#630            a time-out of the client's settings    goredis: TestTimeoutOfClientIsNotThatOfTheWait
//	rueidis#457, #301      waits hang                             TestWaitersWithTheContextOfTheHoldEnd
//	etcd#6127              no report of a loss                    TestLossIsReportedWithinMilliseconds
//	etcd#10111             Lock succeeds after its context        TestDoneContextSendsNothing, TestCancelledWaitsLeaveNothing
//	etcd#11456             the lease has ended after the wait     clients/vectors/grant-heard-late.transcript
//	gocron#799             a job runs twice                       examples: TestJobRunsInOneProcess, TestLongJobKeepsItsLock
//	go-zero#1704           no re-entrance                         TestOwnerAcquiresItsLockAgain
//	cozy-stack#4929        goroutines leak                        TestMain, with goleak
//	e2b infra#2594         waits load the server                  TestThousandWaitersAreOneAtTheServer

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

func TestShortenedLeaseIsALoss(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door")
	lost := hold.Lost()
	at := time.Now()
	s.Do("PEXPIRE", "door", "100")
	soon(t, lost)
	took(t, at, 90*time.Millisecond, time.Second)
	is(t, hold.Release(context.Background()), redislock.ErrLost)
}

func TestWaitersWithTheContextOfTheHoldEnd(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	for range 20 {
		hold := lock(t, locks, "door")
		ctx, stop := hold.Context(context.Background())
		errs := make(chan error, 100)
		for range 100 {
			go func() {
				hold, err := locks.Lock(ctx, "door")
				if err == nil {
					err = hold.Release(context.Background())
				}
				errs <- err
			}()
		}
		ok(t, hold.Release(context.Background()))
		for range 100 {
			// One may be granted before it sees the end.
			if err := soon(t, errs); err != nil {
				is(t, err, redislock.ErrTimeout, context.Canceled)
			}
		}
		stop()
		nothingLeft(t, s, "door")
	}
}

func TestCloseEndsTheWaits(t *testing.T) {
	s := testserver.Start(t)
	for _, isShared := range []bool{false, true} {
		locks, other := process(t, s), process(t, s)
		hold := lock(t, other, "door")
		if isShared {
			// The connection stays open for others.
			server := redislock.Server{ID: t.Name(), Dial: func(context.Context, string) (net.Conn, error) { return net.Dial("tcp", s.Address()) }}
			locks = over(t, server)
			over(t, server)
		}
		errs := make(chan error, 10)
		for range 10 {
			go func() {
				_, err := locks.Lock(context.Background(), "door")
				errs <- err
			}()
		}
		testserver.Eventually(t, "a waiter", func() bool { return s.Info("door", "waiters") == "1" })
		ok(t, locks.Close(context.Background()))
		for range 10 {
			is(t, soon(t, errs), redislock.ErrUnavailable)
		}
		testserver.Eventually(t, "withdrawn", func() bool { return s.Info("door", "waiters") == "0" })
		ok(t, hold.Release(context.Background()))
	}
}

func TestWaitersUseNoProcessor(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	hold := lock(t, process(t, s), "door")
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	for range 1000 {
		group.Go(func() { _, _ = locks.Lock(ctx, "door") })
	}
	testserver.Eventually(t, "a waiter", func() bool { return s.Info("door", "waiters") == "1" })
	time.Sleep(200 * time.Millisecond)
	used := func() time.Duration {
		var usage syscall.Rusage
		ok(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
		return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	}
	before := used()
	time.Sleep(time.Second)
	if more := used() - before; more > 100*time.Millisecond {
		t.Fatal(more)
	}
	cancel()
	group.Wait()
	ok(t, hold.Release(context.Background()))
}

func TestRenewedLockOutlastsStalls(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door", redislock.Lease(1200*time.Millisecond), redislock.Renew())
	lost := hold.Lost()
	for range 4 {
		s.Signal(syscall.SIGSTOP)
		time.Sleep(500 * time.Millisecond)
		s.Signal(syscall.SIGCONT)
		time.Sleep(200 * time.Millisecond)
	}
	select {
	case <-lost:
		t.Fatal("it is lost")
	default:
	}
	ok(t, hold.Release(context.Background()))
}
