// Package integration tests the package on real servers, with the client libraries.
package integration

import (
	"context"
	"errors"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction("io.copyBuffer"), goleak.IgnoreAnyFunction("io.Copy"))
}

var processes atomic.Int64

// process returns locks with a connection of their own, as another process has.
func process(t testing.TB, s *testserver.Server) *redislock.Locks {
	return over(t, redislock.Server{
		ID: strconv.FormatInt(processes.Add(1), 10),
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if address == "" {
				address = s.Address()
			}
			return (&net.Dialer{}).DialContext(ctx, "tcp", address)
		},
	})
}

func over(t testing.TB, server redislock.Server) *redislock.Locks {
	locks := redislock.New(server)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	})
	return locks
}

func within(t testing.TB, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

func lock(t testing.TB, locks *redislock.Locks, name string, opts ...redislock.Option) *redislock.Hold {
	t.Helper()
	hold, err := locks.Lock(within(t, 10*time.Second), name, opts...)
	ok(t, err)
	return hold
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// is fails unless the error is of these classes.
func is(t testing.TB, err error, classes ...error) {
	t.Helper()
	for _, class := range classes {
		if !errors.Is(err, class) {
			t.Fatalf("%v is not %v", err, class)
		}
	}
}

func isNot(t testing.TB, err error, class error) {
	t.Helper()
	if errors.Is(err, class) {
		t.Fatalf("%v is %v", err, class)
	}
}

// shortly is the most that a report or a reply takes on a busy machine. The next renewal or request would be later.
const shortly = 250 * time.Millisecond

// took fails unless a time has passed since.
func took(t testing.TB, since time.Time, least, most time.Duration) {
	t.Helper()
	if d := time.Since(since); d < least || d > most {
		t.Fatalf("it took %v, not %v to %v", d, least, most)
	}
}

// soon fails unless a channel is closed or has a value within a second.
func soon[T any](t testing.TB, ch <-chan T) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(time.Second):
		t.Fatal("it does not come within a second")
		panic("")
	}
}

func equal[T comparable](t testing.TB, got, want T) {
	t.Helper()
	if got != want {
		t.Fatalf("%v is not %v", got, want)
	}
}

// waiting starts a Lock, and returns its result when the server has so many waiters.
func waiting(t testing.TB, s *testserver.Server, locks *redislock.Locks, ctx context.Context, name string, count int, opts ...redislock.Option) <-chan result {
	t.Helper()
	results := make(chan result, 1)
	go func() {
		hold, err := locks.Lock(ctx, name, opts...)
		results <- result{hold, err}
	}()
	testserver.Eventually(t, "waiters", func() bool { return s.Info(name, "waiters") == strconv.Itoa(count) })
	return results
}

type result struct {
	hold *redislock.Hold
	err  error
}

// nothingLeft fails unless the server has neither a holder nor a waiter.
func nothingLeft(t testing.TB, s *testserver.Server, name string) {
	t.Helper()
	testserver.Eventually(t, "nothing is left", func() bool { return s.Info(name, "state") == "free" && s.Info(name, "waiters") == "0" })
}

func has(text, part string) bool { return strings.Contains(text, part) }
