package integration

import (
	"context"
	"strconv"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func TestUnknownAddressIsAnErrorAtOnce(t *testing.T) {
	s := testserver.Start(t)
	s.Stop()
	at := time.Now()
	_, err := process(t, s).Lock(context.Background(), "door")
	is(t, err, redislock.ErrUnavailable)
	_, err = process(t, s).TryLock(context.Background(), "door")
	is(t, err, redislock.ErrUnavailable)
	took(t, at, 0, time.Second)
}

func TestWaitGoesOnWhileServerRestarts(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	lock(t, locks, "door", redislock.Lease(time.Minute))
	results := waiting(t, s, other, context.Background(), "door", 1)
	s.Stop()
	time.Sleep(time.Second)
	begun := make(chan result, 1)
	go func() {
		hold, err := locks.Lock(context.Background(), "shelf")
		begun <- result{hold, err}
	}()
	time.Sleep(100 * time.Millisecond)
	s.Restart()
	for _, results := range []<-chan result{results, begun} {
		r := soon(t, results)
		ok(t, r.err)
		ok(t, r.hold.Release(context.Background()))
	}
}

func TestHolderSurvivesShortOutages(t *testing.T) {
	s := testserver.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	locks := process(t, s)
	hold := lock(t, locks, "door", redislock.Lease(time.Minute))
	for _, run := range []func() error{
		func() error { return hold.Extend(context.Background(), time.Minute) },
		func() error { _, err := locks.TryLock(context.Background(), "shelf"); return err },
		func() error { return hold.Release(context.Background()) },
	} {
		s.Stop()
		time.AfterFunc(200*time.Millisecond, s.Restart)
		ok(t, run())
	}
	nothingLeft(t, s, "door")
}

func TestOutageAtTheDeadlineIsNoTimeout(t *testing.T) {
	s := testserver.Start(t)
	locks, other := process(t, s), process(t, s)
	hold := lock(t, locks, "door")
	results := waiting(t, s, other, within(t, 700*time.Millisecond), "door", 1)
	behind := make(chan error, 1)
	ctx := within(t, 1500*time.Millisecond)
	go func() {
		_, err := other.Lock(ctx, "door")
		behind <- err
	}()
	time.Sleep(200 * time.Millisecond)
	s.Signal(syscall.SIGSTOP)
	at := time.Now()
	for _, err := range []error{(<-results).err, <-behind} {
		is(t, err, redislock.ErrUnavailable, context.DeadlineExceeded)
		isNot(t, err, redislock.ErrTimeout)
	}
	took(t, at, 500*time.Millisecond, 3*time.Second)
	_, err := locks.Lock(within(t, 50*time.Millisecond), "shelf")
	is(t, err, redislock.ErrUnavailable)
	s.Signal(syscall.SIGCONT)
	testserver.Eventually(t, "withdrawn", func() bool { return s.Info("door", "waiters") == "0" && s.Info("shelf", "state") == "free" })
	ok(t, hold.Release(context.Background()))
}

func TestSilentServerIsReplaced(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	hold := lock(t, locks, "door", redislock.Lease(time.Minute))
	s.Signal(syscall.SIGSTOP)
	at := time.Now()
	is(t, hold.Extend(context.Background(), time.Minute), redislock.ErrUnavailable)
	took(t, at, 4*time.Second, 9*time.Second)
	s.Signal(syscall.SIGCONT)
	ok(t, hold.Extend(context.Background(), time.Minute))
	ok(t, hold.Release(context.Background()))
}

func TestCutConnectionsLeaveNothing(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	stop := make(chan struct{})
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-stop:
				return
			case <-time.After(5 * time.Millisecond):
				s.Cut()
			}
		}
	}()
	results := make(chan error, 40)
	for n := range 40 {
		go func() {
			for range 10 {
				hold, err := locks.Lock(context.Background(), "door-"+strconv.Itoa(n%4))
				if err == nil {
					err = hold.Release(context.Background())
				}
				if err != nil {
					results <- err
					return
				}
			}
			results <- nil
		}()
	}
	for range 40 {
		ok(t, <-results)
	}
	close(stop)
	<-done
	for n := range 4 {
		nothingLeft(t, s, "door-"+strconv.Itoa(n))
	}
}

func TestReleaseInAnOutageIsDoneLater(t *testing.T) {
	s := testserver.Start(t, "--appendonly", "yes", "--appendfsync", "always")
	locks := process(t, s)
	hold := lock(t, locks, "door", redislock.Lease(time.Minute))
	s.Stop()
	is(t, hold.Release(within(t, 100*time.Millisecond)), redislock.ErrUnavailable)
	s.Restart()
	nothingLeft(t, s, "door")
	ok(t, locks.Close(within(t, 5*time.Second)))
}
