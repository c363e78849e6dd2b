package examples

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
	"time"

	"github.com/go-co-op/gocron/v2"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func open(t *testing.T) (*testserver.Server, *redislock.Locks) {
	t.Helper()
	s := testserver.Start(t)
	locks, err := redislock.Open(s.URL())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = locks.Close(ctx)
	})
	return s, locks
}

func TestJobRunsInOneProcess(t *testing.T) {
	_, locks := open(t)
	var runs atomic.Int32
	start := time.Now().Add(100 * time.Millisecond)
	for range 3 {
		scheduler, err := gocron.NewScheduler(gocron.WithDistributedLocker(JobLocker{locks}))
		if err != nil {
			t.Fatal(err)
		}
		job := gocron.NewTask(func() { runs.Add(1); time.Sleep(300 * time.Millisecond) })
		if _, err := scheduler.NewJob(gocron.OneTimeJob(gocron.OneTimeJobStartDateTime(start)), job, gocron.WithName("report")); err != nil {
			t.Fatal(err)
		}
		scheduler.Start()
		defer func() { _ = scheduler.Shutdown() }()
	}
	time.Sleep(700 * time.Millisecond)
	if runs.Load() != 1 {
		t.Fatal(runs.Load())
	}
}

func TestCertificateIsLockedByName(t *testing.T) {
	s, locks := open(t)
	locker, ctx := &CertificateLocker{Locks: locks}, context.Background()
	if err := errors.Join(locker.Lock(ctx, "a"), locker.Lock(ctx, "b"), locker.Unlock(ctx, "a")); err != nil {
		t.Fatal(err)
	}
	if s.Info("certificate:a", "state") != "free" || s.Info("certificate:b", "state") != "mutex" || locker.Unlock(ctx, "a") == nil {
		t.Fatal("another one is locked")
	}
	if err := locker.Unlock(ctx, "b"); err != nil {
		t.Fatal(err)
	}
}

func TestLeaderThatLosesItsLockIsFollowed(t *testing.T) {
	s, locks := open(t)
	ctx, cancel := context.WithCancel(context.Background())
	terms := make(chan struct{}, 10)
	done := make(chan error)
	go func() {
		done <- Lead(ctx, locks, "one", func(ctx context.Context) error {
			terms <- struct{}{}
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-terms
	s.Do("DEL", "leader")
	<-terms
	cancel()
	if err := <-done; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	testserver.Eventually(t, "free", func() bool { return s.Info("leader", "state") == "free" })
}

func TestSecondRequestWaitsOrIsRefused(t *testing.T) {
	s, locks := open(t)
	handler := OneAtATime(locks, func(r *http.Request) string { return r.URL.Path }, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Context().Err() != nil {
			w.WriteHeader(http.StatusTeapot)
		}
	}))
	status := func() int {
		recorder := httptest.NewRecorder()
		handler.ServeHTTP(recorder, httptest.NewRequest(http.MethodGet, "/a", nil))
		return recorder.Code
	}
	if code := status(); code != http.StatusOK {
		t.Fatal(code)
	}
	hold, err := locks.Lock(context.Background(), "request:/a")
	if err != nil {
		t.Fatal(err)
	}
	if code := status(); code != http.StatusTooManyRequests {
		t.Fatal(code)
	}
	time.AfterFunc(100*time.Millisecond, func() { _ = hold.Release(context.Background()) })
	if code := status(); code != http.StatusOK {
		t.Fatal(code)
	}
	s.Stop()
	if code := status(); code != http.StatusServiceUnavailable {
		t.Fatal(code)
	}
}

func TestItemsShareThePermits(t *testing.T) {
	_, locks := open(t)
	var inside, most atomic.Int32
	err := ForEach(context.Background(), locks, 3, make([]int, 30), func(context.Context, int) error {
		most.Store(max(most.Load(), inside.Add(1)))
		time.Sleep(time.Millisecond)
		inside.Add(-1)
		return nil
	})
	if err != nil || most.Load() > 3 {
		t.Fatal(err, most.Load())
	}
	broken := errors.New("broken")
	if err := ForEach(context.Background(), locks, 3, []int{1, 2, 3}, func(context.Context, int) error { return broken }); !errors.Is(err, broken) {
		t.Fatal(err)
	}
}

func TestWritersCarryRisingTokens(t *testing.T) {
	s, locks := open(t)
	var tokens []int64
	for range 2 {
		err := Write(context.Background(), locks, func(token int64) error {
			tokens = append(tokens, token)
			if s.Info("door", "state") != "mutex" {
				return errors.New("no lock is held")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if tokens[0] >= tokens[1] {
		t.Fatal(tokens)
	}
	testserver.Eventually(t, "free", func() bool { return s.Info("door", "state") == "free" })
}
