package integration

import (
	"context"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/internal/testserver"
)

func TestClusterIsNoticed(t *testing.T) {
	one, _ := testserver.Cluster(t)
	locks := process(t, one)
	hold := lock(t, locks, "a}b")
	_, err := hold.Fence(context.Background())
	is(t, err, redislock.ErrArgument)
	all, err := locks.Several(context.Background(), []string{"a", "b", "c", "d", "e"}, redislock.Session())
	ok(t, err)
	ok(t, all.Release(context.Background()))
}

func TestHoldsAndWaitsFollowTheirSlot(t *testing.T) {
	one, two := testserver.Cluster(t)
	const name = "door"
	slot := one.Do("CLUSTER", "KEYSLOT", name)
	from, to := one, two
	if number, _ := strconv.Atoi(slot); number > 8191 {
		from, to = two, one
	}
	locks, other := process(t, one), process(t, two)
	hold := lock(t, locks, name, redislock.Lease(3*time.Second), redislock.Renew())
	lost := hold.Lost()
	results := waiting(t, from, other, within(t, 20*time.Second), name, 1)
	move(from, to, slot, name)
	testserver.Eventually(t, "it waits there", func() bool { return to.Info(name, "waiters") == "1" })
	select {
	case <-lost:
		t.Fatal("it is lost")
	case <-time.After(3500 * time.Millisecond):
	}
	ok(t, hold.Release(context.Background()))
	r := soon(t, results)
	ok(t, r.err)
	ok(t, r.hold.Release(context.Background()))
}

// move moves a slot that has one key at most.
func move(from, to *testserver.Server, slot, name string) {
	fromID, toID := from.Do("CLUSTER", "MYID"), to.Do("CLUSTER", "MYID")
	to.Do("CLUSTER", "SETSLOT", slot, "IMPORTING", fromID)
	from.Do("CLUSTER", "SETSLOT", slot, "MIGRATING", toID)
	from.Do("MIGRATE", "127.0.0.1", strconv.Itoa(to.Port), name, "0", "5000")
	to.Do("CLUSTER", "SETSLOT", slot, "NODE", toID)
	from.Do("CLUSTER", "SETSLOT", slot, "NODE", toID)
}

func TestManyUseALockWhoseSlotMoves(t *testing.T) {
	from, to := testserver.Cluster(t)
	const name = "door"
	slot := from.Do("CLUSTER", "KEYSLOT", name)
	if number, _ := strconv.Atoi(slot); number > 8191 {
		from, to = to, from
	}
	all := []*redislock.Locks{process(t, from), process(t, to)}
	var inside, cycles atomic.Int32
	var group sync.WaitGroup
	until := time.Now().Add(4 * time.Second)
	for n := range 10 {
		group.Go(func() {
			for time.Now().Before(until) {
				ctx, cancel := context.WithTimeout(context.Background(), time.Duration(n+1)*300*time.Millisecond)
				hold, err := all[n%2].Lock(ctx, name, redislock.Lease(10*time.Second))
				cancel()
				if err != nil {
					is(t, err, context.DeadlineExceeded)
					continue
				}
				cycles.Add(1)
				if inside.Add(1) != 1 {
					t.Error("two are inside")
				}
				time.Sleep(time.Millisecond)
				inside.Add(-1)
				if err := hold.Release(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for time.Now().Before(until) {
		time.Sleep(200 * time.Millisecond)
		move(from, to, slot, name)
		from, to = to, from
	}
	group.Wait()
	t.Log("cycles", cycles.Load())
	nothingLeft(t, from, name)
	ok(t, lock(t, all[0], name).Release(context.Background()))
}

func TestUserWithoutChannelPolls(t *testing.T) {
	s := testserver.Start(t)
	s.Do("ACL", "SETUSER", "worker", "on", ">secret", "resetchannels", "~*", "+lock.acquire", "+lock.release")
	locks := over(t, redislock.Server{
		ID:          s.Address(),
		Dial:        func(context.Context, string) (net.Conn, error) { return net.Dial("tcp", s.Address()) },
		Credentials: func(context.Context) (string, string, error) { return "worker", "secret", nil },
	})
	hold := lock(t, locks, "door", redislock.Lease(time.Second))
	results := make(chan error, 1)
	go func() {
		hold, err := locks.Lock(context.Background(), "door")
		if err == nil {
			err = hold.Release(context.Background())
		}
		results <- err
	}()
	time.Sleep(50 * time.Millisecond)
	lost := hold.Lost()
	s.Do("DEL", "door")
	ok(t, soon(t, results))
	soon(t, lost)
}
