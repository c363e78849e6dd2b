package goredis_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/goredis"
	"redis-lock/clients/go/internal/clienttest"
	"redis-lock/clients/go/internal/testserver"
)

func TestClientGivesItsServer(t *testing.T) {
	clienttest.Run(t, func(t testing.TB, s clienttest.Settings) *redislock.Locks {
		client := redis.NewUniversalClient(&redis.UniversalOptions{
			Addrs: s.Addresses, MasterName: s.Master, Username: s.User, Password: s.Password, TLSConfig: s.Secure,
		})
		t.Cleanup(func() { _ = client.Close() })
		return redislock.New(goredis.From(client))
	})
}

func TestRingIsNoServer(t *testing.T) {
	locks := redislock.New(goredis.From(redis.NewRing(&redis.RingOptions{})))
	if _, err := locks.TryLock(context.Background(), "door"); !errors.Is(err, redislock.ErrArgument) {
		t.Fatal(err)
	}
}

func TestTimeoutOfClientIsNotThatOfTheWait(t *testing.T) {
	s := testserver.Start(t)
	client := redis.NewClient(&redis.Options{Addr: s.Address(), ReadTimeout: 50 * time.Millisecond, PoolSize: 1})
	defer client.Close()
	locks := redislock.New(goredis.From(client))
	hold, err := locks.Lock(context.Background(), "door")
	if err != nil {
		t.Fatal(err)
	}
	// The pool of the client has one connection, and none of the waits uses it.
	time.AfterFunc(200*time.Millisecond, func() { _ = client.Ping(context.Background()).Err(); _ = hold.Release(context.Background()) })
	hold, err = locks.Lock(context.Background(), "door")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(hold.Release(context.Background()), locks.Close(context.Background())); err != nil {
		t.Fatal(err)
	}
}
