package valkeygo_test

import (
	"testing"

	client "github.com/valkey-io/valkey-go"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/clienttest"
	"redis-lock/clients/go/valkeygo"
)

func TestOptionsGiveTheirServer(t *testing.T) {
	clienttest.Run(t, func(_ testing.TB, s clienttest.Settings) *redislock.Locks {
		return redislock.New(valkeygo.From(client.ClientOption{
			InitAddress: s.Addresses, Sentinel: client.SentinelOption{MasterSet: s.Master},
			Username: s.User, Password: s.Password, TLSConfig: s.Secure,
		}))
	})
}
