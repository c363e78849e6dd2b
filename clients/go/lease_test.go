package redislock

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

func TestRenewalThatWaitsIsNotSentAfterDetach(t *testing.T) {
	bubbles(t)
	synctest.Test(t, func(t *testing.T) {
		s, delay := &fakeServer{locks: map[string]*fakeLock{}, clients: map[*fakeClient]struct{}{}}, time.Duration(0)
		dial := func(ctx context.Context, address string) (net.Conn, error) {
			time.Sleep(delay)
			return s.dial(ctx, address)
		}
		locks := New(Server{Dial: dial, ID: t.Name()})
		h, err := locks.Lock(context.Background(), "door", Lease(6*time.Second), Renew())
		if err != nil {
			t.Fatal(err)
		}
		s.mu.Lock()
		delay = 3 * time.Second
		for c := range s.clients {
			_ = c.Close()
		}
		before := s.locks["door"].end
		s.mu.Unlock()
		// The renewal waits for the connection by now.
		time.Sleep(2500 * time.Millisecond)
		if _, err := h.Detach(); err != nil {
			t.Fatal(err)
		}
		time.Sleep(3 * time.Second)
		s.mu.Lock()
		if end := s.locks["door"].end; !end.Equal(before) {
			t.Errorf("the lease was set to end %v later", end.Sub(before))
		}
		s.mu.Unlock()
		if err := locks.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
}

func TestLocalEndIsNeverAfterThatOfServer(t *testing.T) {
	bubbles(t)
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			s := &fakeServer{locks: map[string]*fakeLock{}, clients: map[*fakeClient]struct{}{}}
			locks := New(Server{Dial: s.dial, ID: fmt.Sprint(t.Name(), seed)})
			h, err := locks.Lock(context.Background(), "door", Lease(9*time.Second), Renew())
			if err != nil {
				t.Fatal(err)
			}
			var group sync.WaitGroup
			for n := range uint64(3) {
				random := rand.New(rand.NewPCG(seed, n))
				group.Go(func() {
					for range 30 {
						time.Sleep(time.Duration(random.IntN([]int{200, 600_000}[random.IntN(2)])) * time.Microsecond)
						ctx, cancel := context.WithTimeout(context.Background(), time.Duration(random.IntN(400))*time.Microsecond)
						if random.IntN(2) == 0 {
							ctx = context.Background()
						}
						_ = h.Extend(ctx, time.Duration(2000+random.IntN(8000))*time.Millisecond)
						cancel()
						if n == 0 && random.IntN(8) == 0 {
							s.mu.Lock()
							for c := range s.clients {
								_ = c.Close()
							}
							s.mu.Unlock()
						}
					}
				})
			}
			ctx, stop := context.WithCancel(context.Background())
			go func() {
				group.Wait()
				stop()
			}()
			for c := h.parts[0]; sleep(ctx, 100*time.Microsecond); {
				c.mu.Lock()
				s.mu.Lock()
				if over := c.endsAt.Sub(s.lock("door").end); c.state != isHeld || over > 0 {
					t.Errorf("seed %d: %v after the end at the server, state %v", seed, over, c.state)
					stop()
				}
				s.mu.Unlock()
				c.mu.Unlock()
			}
			group.Wait()
			_ = h.Release(context.Background())
			_ = locks.Close(context.Background())
			// The bubble ends only when all goroutines have.
			time.Sleep(time.Second)
		})
		if t.Failed() {
			return
		}
	}
}
