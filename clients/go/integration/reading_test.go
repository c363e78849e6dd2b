package integration

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

// busy makes callers read their replies themselves.
func busy(t testing.TB, locks *redislock.Locks) {
	t.Helper()
	for range 50 {
		ok(t, lock(t, locks, "busy").Release(context.Background()))
	}
}

func TestCallerThatReadsIsCancelled(t *testing.T) {
	s := testserver.Start(t)
	t.Run("by a deadline", func(t *testing.T) { testCancelled(t, s, process(t, s)) })
	t.Run("without deadlines", func(t *testing.T) {
		testCancelled(t, s, over(t, redislock.Server{ID: t.Name(), Dial: func(ctx context.Context, _ string) (net.Conn, error) {
			link, err := (&net.Dialer{}).DialContext(ctx, "tcp", s.Address())
			return noDeadlines{link}, err
		}}))
	})
}

// noDeadlines is a connection such as one through SSH.
type noDeadlines struct{ net.Conn }

func (noDeadlines) SetReadDeadline(time.Time) error { return errors.New("it has no deadlines") }

func testCancelled(t *testing.T, s *testserver.Server, locks *redislock.Locks) {
	hold := lock(t, locks, "door", redislock.Lease(time.Minute))
	before := len(s.Connections())
	for range 20 {
		busy(t, locks)
		s.Signal(syscall.SIGSTOP)
		at := time.Now()
		is(t, hold.Extend(within(t, 20*time.Millisecond), time.Minute), context.DeadlineExceeded)
		took(t, at, 20*time.Millisecond, time.Second)
		s.Signal(syscall.SIGCONT)
		// The reply of the first one is not taken for that of the second.
		_, err := locks.TryLock(context.Background(), "door")
		is(t, err, redislock.ErrTimeout)
	}
	equal(t, len(s.Connections()), before)
	ok(t, hold.Release(context.Background()))
	ok(t, locks.Close(context.Background()))
}

func TestCancelledCallersLeaveRepliesToOthers(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	busy(t, locks)
	var group sync.WaitGroup
	for n := range 8 {
		group.Go(func() {
			for m := range 200 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(m%10)*30*time.Microsecond)
				if n%2 == 0 {
					ctx, cancel = context.WithTimeout(context.Background(), 10*time.Second)
				}
				hold, err := locks.Lock(ctx, "door-"+strconv.Itoa(n))
				if err == nil {
					err = hold.Release(context.Background())
				}
				if n%2 == 0 && err != nil || err != nil && ctx.Err() == nil {
					t.Error(err)
				}
				cancel()
			}
		})
	}
	group.Wait()
	equal(t, len(s.Connections()), 1)
	for n := range 8 {
		nothingLeft(t, s, "door-"+strconv.Itoa(n))
	}
}

func TestMessagesComeWhileCallersRead(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	stop := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				busy(t, locks)
			}
		}
	})
	for range 20 {
		hold := lock(t, other, "door")
		results := waiting(t, s, locks, context.Background(), "door", 1)
		at := time.Now()
		ok(t, hold.Release(context.Background()))
		r := soon(t, results)
		took(t, at, 0, shortly)
		lost := r.hold.Lost()
		testserver.Eventually(t, "tracked", func() bool { return !has(s.Do("INFO", "stats"), "tracking_total_keys:0") })
		at = time.Now()
		s.Do("DEL", "door")
		soon(t, lost)
		took(t, at, 0, shortly)
		is(t, r.hold.Release(context.Background()), redislock.ErrLost)
	}
	close(stop)
	group.Wait()
}

func TestLostConnectionIsSeenAfterCallersRead(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	for range 5 {
		busy(t, locks)
		s.Cut()
		time.Sleep(50 * time.Millisecond)
		// A command that is lost with its connection would be followed by a second RELEASE.
		before := s.Calls("lock.release")
		ok(t, lock(t, locks, "door").Release(context.Background()))
		equal(t, s.Calls("lock.release"), before+1)
	}
}
