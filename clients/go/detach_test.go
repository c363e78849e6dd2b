package redislock

import (
	"context"
	"net"
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
