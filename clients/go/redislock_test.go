package redislock_test

import (
	"context"
	"errors"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func open(t testing.TB, s *testserver.Server) *redislock.Locks {
	t.Helper()
	locks, err := redislock.Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
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

func TestFreeLockIsAcquiredAndReleased(t *testing.T) {
	s := testserver.Start(t)
	locks := open(t, s)
	ctx := within(t, 5*time.Second)
	hold, err := locks.Lock(ctx, "door", redislock.Label("billing"))
	if err != nil {
		t.Fatal(err)
	}
	if state := s.Info("door", "state"); state != "mutex" {
		t.Fatal(state)
	}
	if _, err := locks.TryLock(ctx, "door"); !errors.Is(err, redislock.ErrTimeout) {
		t.Fatal(err)
	}
	short, cancel := context.WithTimeout(ctx, 100*time.Millisecond)
	defer cancel()
	at := time.Now()
	if _, err := locks.Lock(short, "door"); !errors.Is(err, redislock.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if took := time.Since(at); took < 100*time.Millisecond || took > 200*time.Millisecond {
		t.Fatal(took)
	}
	testserver.Eventually(t, "withdrawn", func() bool { return s.Info("door", "waiters") == "0" })
	if err := hold.Extend(ctx, time.Minute); err != nil {
		t.Fatal(err)
	}
	one, err := hold.Fence(ctx)
	if err != nil || one == 0 {
		t.Fatal(one, err)
	}
	lost := hold.Lost()
	go func() { time.Sleep(20 * time.Millisecond); s.Do("DEL", "door") }()
	at = time.Now()
	<-lost
	t.Log("lost after", time.Since(at))
	if err := hold.Release(ctx); !errors.Is(err, redislock.ErrLost) {
		t.Fatal(err)
	}
	err = locks.Do(ctx, "door", func(ctx context.Context) error {
		time.Sleep(20 * time.Millisecond)
		s.Do("DEL", "door")
		<-ctx.Done()
		return context.Cause(ctx)
	})
	if !errors.Is(err, redislock.ErrLost) {
		t.Fatal(err)
	}
	holds := make(chan time.Duration, 100)
	for range 100 {
		go func() {
			at := time.Now()
			hold, err := locks.Lock(ctx, "door")
			if err != nil {
				t.Error(err)
			}
			if err := hold.Release(ctx); err != nil {
				t.Error(err)
			}
			holds <- time.Since(at)
		}()
	}
	for range 100 {
		<-holds
	}
}

func BenchmarkFreeLock(b *testing.B) {
	s := testserver.Start(b)
	locks := open(b, s)
	ctx := context.Background()
	b.ReportAllocs()
	for b.Loop() {
		hold, err := locks.Lock(ctx, "door")
		if err != nil {
			b.Fatal(err)
		}
		if err := hold.Release(ctx); err != nil {
			b.Fatal(err)
		}
	}
}
