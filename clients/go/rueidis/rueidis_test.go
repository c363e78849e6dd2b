package rueidis_test

import (
	"testing"

	client "github.com/redis/rueidis"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/clienttest"
	"redis-lock/clients/go/rueidis"
)

func TestOptionsGiveTheirServer(t *testing.T) {
	clienttest.Run(t, func(_ testing.TB, s clienttest.Settings) *redislock.Locks {
		return redislock.New(rueidis.From(client.ClientOption{
			InitAddress: s.Addresses, Sentinel: client.SentinelOption{MasterSet: s.Master},
			Username: s.User, Password: s.Password, TLSConfig: s.Secure,
		}))
	})
}
