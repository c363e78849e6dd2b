package goredis_test

import (
	"context"
	"errors"
	"testing"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/goredis"
	"redis-lock/clients/go/internal/clienttest"
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
