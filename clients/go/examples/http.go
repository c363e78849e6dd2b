package examples

import (
	"context"
	"errors"
	"net/http"
	"time"

	redislock "redis-lock/clients/go"
)

// OneAtATime lets one request for a key be served at a time, in all processes. A request waits two seconds at most. Its context ends when
// the client goes away or the lock is lost.
func OneAtATime(locks *redislock.Locks, key func(*http.Request) string, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		patience, cancel := context.WithTimeout(r.Context(), 2*time.Second)
		defer cancel()
		hold, err := locks.Lock(patience, "request:"+key(r), redislock.MaxWaiters(100))
		switch {
		case errors.Is(err, redislock.ErrTimeout) || errors.Is(err, redislock.ErrQueueFull):
			http.Error(w, "busy", http.StatusTooManyRequests)
			return
		case err != nil:
			http.Error(w, "try again later", http.StatusServiceUnavailable)
			return
		}
		// The response does not wait for the release.
		defer func() { go hold.Release(context.WithoutCancel(r.Context())) }()
		ctx, stop := hold.Context(r.Context())
		defer stop()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}
