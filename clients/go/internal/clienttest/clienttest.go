// Package clienttest has the tests of packages that make a server of a client.
package clienttest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net"
	"strconv"
	"strings"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

// Settings are those of a client.
type Settings struct {
	Addresses      []string
	User, Password string
	Secure         *tls.Config
	Master         string
}

// Run runs all tests with the locks that open makes of the settings of a client. It closes them.
func Run(t *testing.T, open func(t testing.TB, s Settings) *redislock.Locks) {
	for name, run := range map[string]func(*testing.T, func(Settings) *redislock.Locks){
		"rights": userOfTheReadmeHasAllRights, "sharing": clientsOfOneServerShareAConnection, "tls": locksWorkOverTLS,
		"sentinel": masterOfSentinelIsFound, "cluster": clusterHasLocksOnAllNodes,
	} {
		t.Run(name, func(t *testing.T) {
			run(t, func(s Settings) *redislock.Locks {
				locks := open(t, s)
				t.Cleanup(func() {
					ctx, cancel := context.WithTimeout(context.Background(), time.Second)
					defer cancel()
					_ = locks.Close(ctx)
				})
				return locks
			})
		})
	}
}

func lock(t testing.TB, locks *redislock.Locks, name string, opts ...redislock.Option) *redislock.Hold {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	hold, err := locks.Lock(ctx, name, opts...)
	ok(t, err)
	return hold
}

func ok(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

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

type result struct {
	hold *redislock.Hold
	err  error
}

func waiting(locks *redislock.Locks, name string) <-chan result {
	results := make(chan result, 1)
	go func() {
		hold, err := locks.Lock(context.Background(), name)
		results <- result{hold, err}
	}()
	return results
}

// rights are those of the README.
const rights = "~* &redis-lock:* +lock.acquire +lock.reenter +lock.share +lock.release +lock.extend +lock.fence " +
	"+client|tracking +ssubscribe +get +hget +zmscore"

func userOfTheReadmeHasAllRights(t *testing.T, open func(Settings) *redislock.Locks) {
	s := testserver.Start(t)
	s.Do(append([]string{"ACL", "SETUSER", "worker", "on", ">secret", "resetchannels"}, strings.Fields(rights)...)...)
	locks := open(Settings{Addresses: []string{s.Address()}, User: "worker", Password: "secret"})
	hold := lock(t, locks, "door")
	lost := hold.Lost()
	results := waiting(locks, "door")
	testserver.Eventually(t, "a waiter", func() bool { return s.Info("door", "waiters") == "1" })
	s.Do("DEL", "door")
	soon(t, lost)
	ok(t, soon(t, results).hold.Release(context.Background()))
	page := lock(t, locks, "page", redislock.Permits(2))
	page.Lost()
	_, err := page.Fence(context.Background())
	ok(t, err)
	ok(t, page.Release(context.Background()))
	at := time.Now()
	_, err = open(Settings{Addresses: []string{s.Address()}, User: "worker", Password: "wrong"}).Lock(context.Background(), "door")
	if !errors.Is(err, redislock.ErrUnavailable) || !strings.Contains(err.Error(), "WRONGPASS") || time.Since(at) > time.Second {
		t.Fatal(err)
	}
}

func clientsOfOneServerShareAConnection(t *testing.T, open func(Settings) *redislock.Locks) {
	s := testserver.Start(t)
	for range 3 {
		lock(t, open(Settings{Addresses: []string{s.Address()}}), "door", redislock.Shared())
	}
	if count := len(s.Connections()); count != 1 {
		t.Fatal(count)
	}
}

// secureProxy passes connections with TLS on to a server.
func secureProxy(t *testing.T, s *testserver.Server) (address string, config *tls.Config) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	ok(t, err)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IPAddresses: []net.IP{{127, 0, 0, 1}}}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	ok(t, err)
	certificate, err := x509.ParseCertificate(der)
	ok(t, err)
	pool := x509.NewCertPool()
	pool.AddCert(certificate)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{der}, PrivateKey: key}}})
	ok(t, err)
	t.Cleanup(func() { _ = listener.Close() })
	go func() {
		for {
			from, err := listener.Accept()
			if err != nil {
				return
			}
			to, err := net.Dial("tcp", s.Address())
			if err != nil {
				return
			}
			go func() { _, _ = io.Copy(to, from); _ = to.Close() }()
			go func() { _, _ = io.Copy(from, to); _ = from.Close() }()
		}
	}()
	return listener.Addr().String(), &tls.Config{RootCAs: pool}
}

func locksWorkOverTLS(t *testing.T, open func(Settings) *redislock.Locks) {
	s := testserver.Start(t)
	address, config := secureProxy(t, s)
	locks := open(Settings{Addresses: []string{address}, Secure: config})
	hold := lock(t, locks, "door")
	// Reads that a deadline ends do not break the connection.
	for n := range 200 {
		ok(t, lock(t, locks, "shelf").Release(context.Background()))
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n)*3*time.Microsecond)
		_ = hold.Extend(ctx, time.Minute)
		cancel()
	}
	if count := len(s.Connections()); count != 1 {
		t.Error(count)
	}
	ok(t, hold.Release(context.Background()))
}

func masterOfSentinelIsFound(t *testing.T, open func(Settings) *redislock.Locks) {
	master := testserver.Start(t)
	replica := testserver.Start(t, "--replicaof", "127.0.0.1", strconv.Itoa(master.Port))
	testserver.Eventually(t, "replicates", func() bool {
		return strings.Contains(replica.Do("INFO", "replication"), "master_link_status:up")
	})
	sentinel := testserver.Sentinel(t, master)
	testserver.Eventually(t, "knows the replica", func() bool {
		return strings.Contains(sentinel.Do("SENTINEL", "REPLICAS", "locks"), strconv.Itoa(replica.Port))
	})
	locks := open(Settings{Addresses: []string{sentinel.Address()}, Master: "locks"})
	hold := lock(t, locks, "door", redislock.Lease(time.Minute))
	testserver.Eventually(t, "replicates the lock", func() bool { return replica.Do("EXISTS", "door") == "1" })
	master.Stop()
	testserver.Eventually(t, "fails over", func() bool {
		role, err := replica.Try("ROLE")
		// Sentinel cuts all connections to a server that it promotes.
		return err == nil && strings.Contains(role, "master")
	})
	ok(t, lock(t, locks, "shelf").Release(context.Background()))
	ok(t, hold.Release(context.Background()))
}

func clusterHasLocksOnAllNodes(t *testing.T, open func(Settings) *redislock.Locks) {
	one, two := testserver.Cluster(t)
	locks := open(Settings{Addresses: []string{one.Address(), two.Address()}})
	for n := range 20 {
		name := fmt.Sprint("door-", n)
		hold := lock(t, locks, name)
		_, err := hold.Fence(context.Background())
		ok(t, err)
		lost, next := hold.Lost(), waiting(locks, name)
		node := one
		if strings.Contains(one.Do("EXISTS", name), "MOVED") {
			node = two
		}
		testserver.Eventually(t, "a waiter", func() bool { return node.Info(name, "waiters") == "1" })
		if n%2 == 0 {
			ok(t, hold.Release(context.Background()))
		} else {
			node.Do("DEL", name)
			soon(t, lost)
		}
		r := soon(t, next)
		ok(t, r.err)
		ok(t, r.hold.Release(context.Background()))
	}
}
