package integration

import (
	"context"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func TestLossIsReportedWithinMilliseconds(t *testing.T) {
	s := testserver.Start(t)
	for name, lose := range map[string][]string{
		"deleted": {"DEL", "door"}, "overwritten": {"SET", "door", "other"}, "flushed": {"FLUSHALL"}, "retyped": {"RENAME", "other", "door"},
	} {
		t.Run(name, func(t *testing.T) {
			locks := process(t, s)
			s.Do("HSET", "other", "a", "1", "b", "2")
			hold := lock(t, locks, "door")
			lost := hold.Lost()
			testserver.Eventually(t, "tracked", func() bool { return s.Calls("get") > 0 && !has(s.Do("INFO", "stats"), "tracking_total_keys:0") })
			at := time.Now()
			s.Do(lose...)
			soon(t, lost)
			took(t, at, 0, shortly)
			is(t, hold.Extend(context.Background(), time.Minute), redislock.ErrLost)
			is(t, hold.Release(context.Background()), redislock.ErrLost)
			s.Do("FLUSHALL")
		})
	}
}

// With NOLOOP, an EXTEND of the own connection would end the tracking of the key without a message, and a DEL that follows it would go
// unreported until the next renewal.
func TestLossAfterOwnExtendIsReported(t *testing.T) {
	s := testserver.Start(t)
	for _, opts := range [][]redislock.Option{
		{}, {redislock.Lease(time.Minute)}, {redislock.Session()}, {redislock.Shared()}, {redislock.Reentrant("o")},
	} {
		for pause := range 20 {
			locks := process(t, s)
			hold := lock(t, locks, "door", opts...)
			lost := hold.Lost()
			ok(t, hold.Extend(context.Background(), time.Minute))
			// The DEL comes before, during and after the read that follows the EXTEND.
			time.Sleep(time.Duration(pause) * 50 * time.Microsecond)
			at := time.Now()
			s.Do("DEL", "door")
			soon(t, lost)
			took(t, at, 0, shortly)
			is(t, hold.Release(context.Background()), redislock.ErrLost)
			ok(t, locks.Close(context.Background()))
		}
	}
}

func TestLossAfterRenewalIsReported(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door", redislock.Lease(3*time.Second), redislock.Renew())
	lost := hold.Lost()
	time.Sleep(1200 * time.Millisecond)
	at := time.Now()
	s.Do("DEL", "door")
	soon(t, lost)
	took(t, at, 0, shortly)
}

func TestOneOfManySharesIsLost(t *testing.T) {
	s := testserver.Start(t)
	locks := process(t, s)
	one, two := lock(t, locks, "page", redislock.Shared(), redislock.Label("a")), lock(t, locks, "page", redislock.Shared())
	a, b := one.Lost(), two.Lost()
	for _, token := range strings.Split(s.Do("ZRANGE", "page", "0", "-1"), "\n") {
		if has(token, "a:") {
			s.Do("ZREM", "page", token)
		}
	}
	soon(t, a)
	select {
	case <-b:
		t.Fatal("the other one is lost")
	case <-time.After(50 * time.Millisecond):
	}
	ok(t, two.Release(context.Background()))
}

func TestLeaseEndsByTheLocalClock(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door", redislock.Lease(300*time.Millisecond))
	at := time.Now()
	lost := hold.Lost()
	s.Signal(syscall.SIGSTOP)
	defer s.Signal(syscall.SIGCONT)
	soon(t, lost)
	took(t, at, 200*time.Millisecond, 2*time.Second)
}

func TestRenewedLockOutlastsCutConnections(t *testing.T) {
	s := testserver.Start(t)
	for _, opts := range [][]redislock.Option{{redislock.Lease(600 * time.Millisecond), redislock.Renew()}, {redislock.Session()}} {
		locks := process(t, s)
		hold := lock(t, locks, "door", opts...)
		lost := hold.Lost()
		for range 3 {
			time.Sleep(300 * time.Millisecond)
			s.Cut()
		}
		select {
		case <-lost:
			t.Fatal("it is lost")
		case <-time.After(1500 * time.Millisecond):
		}
		at := time.Now()
		s.Do("DEL", "door")
		soon(t, lost)
		took(t, at, 0, shortly)
		is(t, hold.Release(context.Background()), redislock.ErrLost)
		ok(t, locks.Close(context.Background()))
	}
}

// isChild tells whether this is the process of a child. It holds the lock then, and has heard of its loss.
func isChild(t *testing.T, opts ...redislock.Option) bool {
	address := os.Getenv("HOLDER_AT")
	if address == "" {
		return false
	}
	locks, err := redislock.Open(address)
	ok(t, err)
	hold, err := locks.Lock(context.Background(), "door", opts...)
	ok(t, err)
	<-hold.Lost()
	is(t, hold.Release(context.Background()), redislock.ErrLost)
	ok(t, locks.Close(context.Background()))
	return true
}

// child runs the test in another process, and returns it when it holds the lock.
func child(t *testing.T, s *testserver.Server) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
	cmd.Env = append(os.Environ(), "HOLDER_AT="+s.URL())
	ok(t, cmd.Start())
	testserver.Eventually(t, "held", func() bool { return s.Info("door", "state") == "mutex" })
	return cmd
}

func TestStoppedProcessHearsOfItsLoss(t *testing.T) {
	if isChild(t, redislock.Lease(600*time.Millisecond), redislock.Renew()) {
		return
	}
	s := testserver.Start(t)
	holder := child(t, s)
	next := waiting(t, s, process(t, s), context.Background(), "door", 1)
	ok(t, holder.Process.Signal(syscall.SIGSTOP))
	r := <-next
	ok(t, r.err)
	ok(t, holder.Process.Signal(syscall.SIGCONT))
	ok(t, holder.Wait())
	equal(t, s.Info("door", "state"), "mutex")
	ok(t, r.hold.Release(context.Background()))
}

func TestSessionEndsWithItsProcess(t *testing.T) {
	if isChild(t, redislock.Session()) {
		return
	}
	s := testserver.Start(t)
	holder := child(t, s)
	next := waiting(t, s, process(t, s), context.Background(), "door", 1)
	at := time.Now()
	ok(t, holder.Process.Kill())
	_ = holder.Wait()
	r := <-next
	ok(t, r.err)
	// Its lease would end after 30 s.
	took(t, at, 500*time.Millisecond, 15*time.Second)
	ok(t, r.hold.Release(context.Background()))
}

func TestStopOfContextForgetsIt(t *testing.T) {
	s := testserver.Start(t)
	hold := lock(t, process(t, s), "door")
	ctx, stop := hold.Context(context.Background())
	stop()
	is(t, context.Cause(ctx), context.Canceled)
	other, stop := hold.Context(context.Background())
	defer stop()
	ok(t, hold.Release(context.Background()))
	soon(t, other.Done())
	isNot(t, context.Cause(other), redislock.ErrLost)
	late, stop := hold.Context(context.Background())
	defer stop()
	soon(t, late.Done())
}
