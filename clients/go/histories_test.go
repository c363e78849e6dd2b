package redislock

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fakeServer is a server with mutexes, in a bubble of synctest: time is simulated, and connections are pipes.
type fakeServer struct {
	mu     sync.Mutex
	random *rand.Rand
	isDown bool
	// isCalm: its connections are never lost.
	isCalm  bool
	locks   map[string]*fakeLock
	clients map[*fakeClient]struct{}
}

type fakeLock struct {
	owner   string
	end     time.Time
	waiters []fakeWaiter
}

type fakeWaiter struct {
	client         *fakeClient
	token, channel string
	lease          time.Duration
	until          time.Time
}

type fakeClient struct {
	net.Conn
	channels map[string]bool
	tracked  map[string]bool
	out      chan string
}

func (s *fakeServer) dial(ctx context.Context, _ string) (net.Conn, error) {
	time.Sleep(time.Millisecond)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.isDown {
		return nil, errors.New("connection refused")
	}
	ours, theirs := net.Pipe()
	c := &fakeClient{Conn: theirs, channels: map[string]bool{}, tracked: map[string]bool{}, out: make(chan string, 10_000)}
	s.clients[c] = struct{}{}
	go s.serve(c)
	go func() {
		for text := range c.out {
			// A reply needs time, and comes in the order of the others.
			time.Sleep(100 * time.Microsecond)
			_, _ = c.Write([]byte(text))
		}
	}()
	return ours, nil
}

func (s *fakeServer) serve(c *fakeClient) {
	in := bufio.NewReader(c)
	for {
		command, err := readValue(in)
		s.mu.Lock()
		if err != nil {
			delete(s.clients, c)
			for _, lock := range s.locks {
				lock.forget(func(w fakeWaiter) bool { return w.client == c })
			}
			close(c.out)
			s.mu.Unlock()
			return
		}
		words := []string{}
		for _, word := range command.list {
			words = append(words, word.text)
		}
		c.out <- s.run(c, words)
		s.mu.Unlock()
	}
}

func (l *fakeLock) forget(is func(fakeWaiter) bool) {
	kept := l.waiters[:0]
	for _, w := range l.waiters {
		if !is(w) {
			kept = append(kept, w)
		}
	}
	l.waiters = kept
}

// lock returns a lock after all that time has done to it.
func (s *fakeServer) lock(name string) *fakeLock {
	l := s.locks[name]
	if l == nil {
		l = &fakeLock{}
		s.locks[name] = l
	}
	l.forget(func(w fakeWaiter) bool {
		isOver := !time.Now().Before(w.until)
		if isOver {
			w.tell("timeout", name)
		}
		return isOver
	})
	if l.owner != "" && !time.Now().Before(l.end) {
		s.free(name, l)
	}
	return l
}

func (w fakeWaiter) tell(event, name string) {
	text := fmt.Sprintf("%s 0 0 %s %s", event, w.token, name)
	w.client.out <- fmt.Sprintf(">3\r\n+smessage\r\n+%s\r\n$%d\r\n%s\r\n", w.channel, len(text), text)
}

// free gives a lock to the next waiter.
func (s *fakeServer) free(name string, l *fakeLock) {
	l.owner = ""
	for c := range s.clients {
		if c.tracked[name] {
			delete(c.tracked, name)
			c.out <- fmt.Sprintf(">2\r\n+invalidate\r\n*1\r\n$%d\r\n%s\r\n", len(name), name)
		}
	}
	if len(l.waiters) > 0 {
		w := l.waiters[0]
		l.waiters = l.waiters[1:]
		l.owner, l.end = w.token, time.Now().Add(w.lease)
		w.tell("granted", name)
	}
}

func (s *fakeServer) run(c *fakeClient, words []string) string {
	switch words[0] {
	case "HELLO", "CLIENT":
		return "+OK\r\n"
	case "SSUBSCRIBE":
		c.channels[words[1]] = true
		return fmt.Sprintf(">3\r\n+ssubscribe\r\n+%s\r\n:1\r\n", words[1])
	case "GET":
		c.tracked[words[1]] = true
		if owner := s.lock(words[1]).owner; owner != "" {
			return fmt.Sprintf("$%d\r\n%s\r\n", len(owner), owner)
		}
		return "_\r\n"
	}
	name, token, option := words[1], words[2], map[string]string{}
	for n := 3; n+1 < len(words); n += 2 {
		option[words[n]] = words[n+1]
	}
	millis := func(name string) time.Duration {
		number, _ := strconv.Atoi(option[name])
		return time.Duration(number) * time.Millisecond
	}
	l := s.lock(name)
	switch words[0] {
	case "LOCK.ACQUIRE":
		if l.owner == "" || l.owner == token {
			l.owner, l.end = token, time.Now().Add(millis("PX"))
			return ":1\r\n"
		}
		if option["BLOCK"] == "" {
			return "_\r\n"
		}
		if !c.channels[option["NOTIFY"]] {
			return "-NOSUBSCRIBER No client of this server is subscribed to this channel\r\n"
		}
		l.forget(func(w fakeWaiter) bool { return w.token == token })
		l.waiters = append(l.waiters, fakeWaiter{c, token, option["NOTIFY"], millis("PX"), time.Now().Add(millis("BLOCK"))})
		return "+WAITING\r\n"
	case "LOCK.EXTEND":
		if l.owner != token {
			return "-NOTOWNER Another client holds this lock\r\n"
		}
		l.end = time.Now().Add(millis("PX"))
		return ":" + option["PX"] + "\r\n"
	case "LOCK.RELEASE":
		before := len(l.waiters)
		l.forget(func(w fakeWaiter) bool { return w.token == token })
		switch {
		case l.owner == token:
			s.free(name, l)
			return ":0\r\n"
		case before > len(l.waiters):
			return "_\r\n"
		}
		return "-NOTOWNER Another client holds this lock\r\n"
	}
	return "-ERR unknown command\r\n"
}

// clock lets time pass for the locks.
func (s *fakeServer) clock(ctx context.Context) {
	for sleep(ctx, 5*time.Millisecond) {
		s.mu.Lock()
		for name := range s.locks {
			s.lock(name)
		}
		s.mu.Unlock()
	}
}

// fault cuts connections, takes the server away for a while, or frees a lock.
func (s *fakeServer) fault(ctx context.Context) {
	s.mu.Lock()
	kind := s.random.IntN(3)
	if s.isCalm {
		kind = 2
	}
	switch kind {
	case 0, 1:
		s.isDown = kind == 1
		for c := range s.clients {
			_ = c.Close()
		}
	case 2:
		for name, l := range s.locks {
			if l.owner != "" {
				s.free(name, l)
				break
			}
		}
	}
	pause := time.Duration(s.random.IntN(3000)) * time.Millisecond
	s.mu.Unlock()
	sleep(ctx, pause)
	s.mu.Lock()
	s.isDown = false
	s.mu.Unlock()
}

func (s *fakeServer) holds(name, token string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.lock(name).owner == token
}

// use acquires locks in random ways. A lock that is held must be held at the server, or be reported as lost soon.
func (s *fakeServer) use(t *testing.T, locks *Locks, random *rand.Rand, until time.Time) {
	for time.Now().Before(until) {
		name := fmt.Sprint("door-", random.IntN(2))
		ctx, cancel := context.WithCancel(context.Background())
		switch random.IntN(3) {
		case 0:
			ctx, cancel = context.WithTimeout(ctx, time.Duration(random.IntN(2000))*time.Millisecond)
		case 1:
			time.AfterFunc(time.Duration(random.IntN(2000))*time.Millisecond, cancel)
		}
		opts := [][]Option{{}, {Lease(2 * time.Second)}, {Lease(2 * time.Second), Renew()}}[random.IntN(3)]
		began := time.Now()
		h, err := locks.Lock(ctx, name, opts...)
		if deadline, ok := ctx.Deadline(); ok && time.Since(deadline) > silence+late {
			t.Errorf("an attempt ends %v after its deadline", time.Since(deadline))
		}
		cancel()
		if err != nil {
			if errors.Is(err, ErrTimeout) == errors.Is(err, ErrUnavailable) {
				t.Errorf("after %v: %v", time.Since(began), err)
			}
			time.Sleep(10 * time.Millisecond)
			continue
		}
		lost := h.Lost()
		time.Sleep(time.Duration(random.IntN(1500)) * time.Millisecond)
		if !s.holds(name, h.parts[0].token) {
			// In an outage the end of the lease is the limit.
			h.parts[0].mu.Lock()
			limit := h.parts[0].lease + time.Second
			h.parts[0].mu.Unlock()
			if s.isCalm {
				limit = 10 * time.Millisecond
			}
			select {
			case <-lost:
			case <-time.After(limit):
				t.Errorf("the loss of %s is not reported", name)
			}
		}
		_ = h.Release(context.Background())
	}
}

// bubbles lets one goroutine run at a time: with more, the race detector of Go 1.26 itself fails in bubbles ("CHECK failed",
// segmentation faults), as all timers of a bubble share one context of the detector and may run at the same time.
func bubbles(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	t.Cleanup(func() { runtime.GOMAXPROCS(before) })
}

func TestRandomHistoriesLeaveNothing(t *testing.T) {
	bubbles(t)
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{isCalm: seed%2 == 0, random: rand.New(rand.NewPCG(seed, 0)), locks: map[string]*fakeLock{}, clients: map[*fakeClient]struct{}{}}
			ctx, cancel := context.WithCancel(context.Background())
			go s.clock(ctx)
			end := time.Now().Add(time.Minute)
			all := []*Locks{}
			var group sync.WaitGroup
			for n := range 3 {
				locks := New(Server{Dial: s.dial, ID: fmt.Sprint("history ", seed, n)})
				all = append(all, locks)
				for m := range 4 {
					group.Go(func() { s.use(t, locks, rand.New(rand.NewPCG(seed, uint64(10*n+m+1))), end) })
				}
			}
			group.Go(func() {
				for time.Now().Before(end) {
					s.fault(ctx)
				}
			})
			group.Wait()
			for _, locks := range all {
				if err := locks.Close(ctx); err != nil {
					t.Error(err)
				}
			}
			s.mu.Lock()
			for name := range s.locks {
				if l := s.lock(name); l.owner != "" || len(l.waiters) > 0 {
					t.Errorf("seed %d: %s is left: %+v", seed, name, l)
				}
			}
			s.mu.Unlock()
			// The bubble ends only when all goroutines have.
			cancel()
		})
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

func TestRenewedLockIsKeptForMinutes(t *testing.T) {
	bubbles(t)
	synctest.Test(t, func(t *testing.T) {
		s := &fakeServer{random: rand.New(rand.NewPCG(1, 1)), locks: map[string]*fakeLock{}, clients: map[*fakeClient]struct{}{}}
		locks := New(Server{Dial: s.dial, ID: t.Name()})
		h, err := locks.Lock(context.Background(), "door")
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * time.Minute)
		if !s.holds("door", h.parts[0].token) {
			t.Error("it was not renewed")
		}
		s.mu.Lock()
		if left := time.Until(s.locks["door"].end); left < 19*time.Second {
			t.Error(left)
		}
		s.mu.Unlock()
		if err := h.Release(context.Background()); err != nil {
			t.Error(err)
		}
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}
