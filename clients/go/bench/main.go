// Command bench measures the package and others of the same purpose in one run: SERVER=redis-server MODULE=libredis_lock.so go run .
//
// It prints a line for each figure. Only the ratios within one run say something.
package main

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	bsm "github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	redsyncgoredis "github.com/go-redsync/redsync/v4/redis/goredis/v9"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/redis/rueidis/rueidislock"

	redislock "redis-lock/clients/go"
	"redis-lock/clients/go/goredis"
)

// lockFunc acquires a lock, and returns its release.
type lockFunc func(ctx context.Context, name string) (func(), error)

// peers open what another process has: each call has connections of its own.
var peers = []struct {
	name string
	open func(address string) (lockFunc, func())
	lock lockFunc
}{
	{"redis-lock", func(address string) (lockFunc, func()) {
		client := redis.NewClient(&redis.Options{Addr: address, Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, network, addr)
		}})
		locks := redislock.New(goredis.From(client))
		return func(ctx context.Context, name string) (func(), error) {
			hold, err := locks.Lock(ctx, name)
			return func() { check(hold.Release(context.Background())) }, err
		}, func() { _ = locks.Close(context.Background()); _ = client.Close() }
	}, nil},
	{"bsm-redislock", func(address string) (lockFunc, func()) {
		client := redis.NewClient(&redis.Options{Addr: address})
		locker := bsm.New(client)
		return func(ctx context.Context, name string) (func(), error) {
			lock, err := locker.Obtain(ctx, name, 30*time.Second, &bsm.Options{RetryStrategy: bsm.LinearBackoff(10 * time.Millisecond)})
			return func() { check(lock.Release(context.Background())) }, err
		}, func() { _ = client.Close() }
	}, nil},
	{"redsync", func(address string) (lockFunc, func()) {
		client := redis.NewClient(&redis.Options{Addr: address})
		rs := redsync.New(redsyncgoredis.NewPool(client))
		return func(ctx context.Context, name string) (func(), error) {
			mutex := rs.NewMutex(name, redsync.WithExpiry(30*time.Second), redsync.WithTries(1_000_000), redsync.WithRetryDelay(10*time.Millisecond))
			err := mutex.LockContext(ctx)
			return func() { _, err := mutex.Unlock(); check(err) }, err
		}, func() { _ = client.Close() }
	}, nil},
	{"rueidislock", func(address string) (lockFunc, func()) {
		locker, err := rueidislock.NewLocker(rueidislock.LockerOption{
			ClientOption: rueidis.ClientOption{InitAddress: []string{address}}, KeyMajority: 1, NoLoopTracking: true, KeyValidity: 30 * time.Second,
		})
		check(err)
		return func(ctx context.Context, name string) (func(), error) {
			_, cancel, err := locker.WithContext(ctx, name)
			return cancel, err
		}, locker.Close
	}, nil},
}

func main() {
	address, stop := startServer()
	defer stop()
	// Peers take short turns, because the load of a machine changes.
	for _, row := range []struct {
		what    string
		workers int
		name    func(n int) string
		rounds  int
		length  time.Duration
	}{
		{"free lock, 1 goroutine", 1, func(int) string { return "free" }, 80, 50 * time.Millisecond},
		{"free locks, 100 goroutines", 100, func(n int) string { return fmt.Sprint("free", n) }, 20, 100 * time.Millisecond},
		{"one lock, 100 goroutines", 100, func(int) string { return "one" }, 3, 1500 * time.Millisecond},
	} {
		if row.rounds < 10 && slices.Contains(os.Args, "-free") {
			continue
		}
		results, ends := make([][]result, len(peers)), []func(){}
		for n, peer := range peers {
			lock, end := peer.open(address)
			ends = append(ends, end)
			cycles(lock, 1, row.length, row.name)
			peers[n].lock = lock
		}
		for range row.rounds {
			for n, peer := range peers {
				results[n] = append(results[n], cycles(peer.lock, row.workers, row.length, row.name))
			}
		}
		for _, end := range ends {
			end()
		}
		for n, peer := range peers {
			ratios := []float64{}
			for round, r := range results[n] {
				ratios = append(ratios, results[0][round].perSecond/r.perSecond)
			}
			slices.Sort(ratios)
			r := results[n]
			slices.SortFunc(r, func(a, b result) int { return cmp.Compare(a.perSecond, b.perSecond) })
			middle := r[len(r)/2]
			fmt.Printf("%-16s %-28s %8.0f a second (%.2f to 1), longest wait %v, each %v of processor time, %d allocations\n", peer.name, row.what,
				middle.perSecond, ratios[len(ratios)/2], middle.longest.Round(time.Millisecond), middle.cpu, middle.allocations)
		}
	}
	if slices.Contains(os.Args, "-free") {
		return
	}
	for _, peer := range peers {
		handOver(peer.name, address, peer.open)
		crowd(peer.name, address, peer.open)
	}
}

type result struct {
	perSecond   float64
	longest     time.Duration
	allocations uint64
	cpu         time.Duration
}

// cycles acquires and releases as often as it can.
func cycles(lock lockFunc, workers int, length time.Duration, name func(n int) string) result {
	ctx, cancel := context.WithTimeout(context.Background(), length+3*time.Second)
	defer cancel()
	var group sync.WaitGroup
	counts, longest := make([]int, workers), make([]time.Duration, workers)
	work := func(n int, until time.Time) {
		for time.Now().Before(until) {
			at := time.Now()
			release, err := lock(ctx, name(n))
			longest[n] = max(longest[n], time.Since(at))
			if err != nil {
				return
			}
			release()
			counts[n]++
		}
	}
	work(0, time.Now().Add(length/20))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	counts[0], longest[0] = 0, 0
	cpu, at := processorTime(), time.Now()
	for n := range workers {
		group.Go(func() { work(n, at.Add(length)) })
	}
	group.Wait()
	took := time.Since(at)
	runtime.ReadMemStats(&after)
	total := 0
	for _, count := range counts {
		total += count
	}
	return result{
		float64(total) / took.Seconds(), slices.Max(longest), (after.Mallocs - before.Mallocs) / uint64(max(total, 1)),
		(processorTime() - cpu) / time.Duration(max(total, 1)),
	}
}

func processorTime() time.Duration {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// handOver measures the time from a release to the grant in another process.
func handOver(peer, address string, open func(string) (lockFunc, func())) {
	one, endOne := open(address)
	two, endTwo := open(address)
	defer endOne()
	defer endTwo()
	var times []time.Duration
	for until := time.Now().Add(4 * time.Second); time.Now().Before(until) && len(times) < 200; {
		release, err := one(context.Background(), "hand-over")
		check(err)
		granted := make(chan time.Time)
		go func() {
			release, err := two(context.Background(), "hand-over")
			check(err)
			granted <- time.Now()
			release()
		}()
		time.Sleep(15 * time.Millisecond)
		at := time.Now()
		release()
		times = append(times, (<-granted).Sub(at))
		time.Sleep(time.Millisecond)
	}
	slices.Sort(times)
	fmt.Printf("%-16s %-28s p50 %v, p99 %v\n", peer, "release to grant", times[len(times)/2], times[len(times)*99/100])
}

// crowd measures what 1,000 goroutines cost that wait for ten locks.
func crowd(peer, address string, open func(string) (lockFunc, func())) {
	holder, endHolder := open(address)
	defer endHolder()
	lock, end := open(address)
	defer end()
	admin := redis.NewClient(&redis.Options{Addr: address})
	defer admin.Close()
	ctx, cancel := context.WithCancel(context.Background())
	releases := []func(){}
	for n := range 10 {
		release, err := holder(ctx, fmt.Sprint("crowd", n))
		check(err)
		releases = append(releases, release)
	}
	goroutines := runtime.NumGoroutine()
	var group sync.WaitGroup
	for n := range 1000 {
		group.Go(func() {
			if release, err := lock(ctx, fmt.Sprint("crowd", n%10)); err == nil {
				release()
			}
		})
	}
	time.Sleep(time.Second)
	before := info(admin, "stats", "total_commands_processed")
	time.Sleep(2 * time.Second)
	commands := (info(admin, "stats", "total_commands_processed") - before) / 2
	fmt.Printf("%-16s %-28s %d commands a second, %d connections, %d goroutines more than the waiters\n", peer, "1,000 wait for ten locks",
		commands, info(admin, "clients", "connected_clients")-1, runtime.NumGoroutine()-goroutines-1000)
	cancel()
	for _, release := range releases {
		release()
	}
	group.Wait()
}

func info(client *redis.Client, section, field string) int {
	match := regexp.MustCompile(field + `:(\d+)`).FindStringSubmatch(client.Info(context.Background(), section).Val())
	number, err := strconv.Atoi(match[1])
	check(err)
	return number
}

func startServer() (address string, stop func()) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	_, port, _ := net.SplitHostPort(listener.Addr().String())
	check(listener.Close())
	server := exec.Command(os.Getenv("SERVER"), "--port", port, "--bind", "127.0.0.1", "--save", "", "--loadmodule", os.Getenv("MODULE"))
	check(server.Start())
	address = "127.0.0.1:" + port
	for {
		link, err := net.Dial("tcp", address)
		if err == nil {
			_ = link.Close()
			return address, func() { _ = server.Process.Kill(); _ = server.Wait() }
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}
