package redislock

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"
)

// Locks are locks on one server, or in one cluster. They are safe for concurrent use, and cheap: all of a process on one server share
// one connection, which is opened when it is needed.
type Locks struct {
	b *backend

	mu       sync.Mutex
	held     map[*claim]struct{}
	isClosed bool
}

// New returns the locks of a server. Nothing is sent yet.
func New(server Server) *Locks { return &Locks{b: openBackend(server), held: map[*claim]struct{}{}} }

// WithLogger sets the logger, which is slog.Default otherwise, for all Locks on the server.
func (l *Locks) WithLogger(logger *slog.Logger) *Locks {
	l.b.logger.Store(logger)
	return l
}

// Lock waits until it holds the lock, at most until ctx ends: that is its only effect, and the lock is held until it is released. Without
// options the lease of 30 seconds is renewed.
//
// The error is ErrTimeout with that of ctx if another holder had the lock until then, ErrUnavailable in an outage, or ErrQueueFull,
// ErrModuleNeeded, ErrArgument. A wait goes on while a server restarts, without a deadline for a minute. No wait that ends leaves
// anything behind in the server.
func (l *Locks) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "acquire", []string{name}, opts, (*claim).acquire)
}

// TryLock acquires the lock if it is free; otherwise the error is ErrTimeout. It does not wait.
func (l *Locks) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "acquire", []string{name}, opts, (*claim).tryAcquire)
}

// Do runs work while it holds the lock, and waits for the release, also if work fails or panics. The context of work ends when the lock
// is lost, with a cause that is ErrLost. The error is that of work, joined with that of the release.
func (l *Locks) Do(ctx context.Context, name string, work func(ctx context.Context) error, opts ...Option) (err error) {
	h, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	inner, stop := h.Context(ctx)
	defer func() {
		stop()
		err = join(err, h.Release(context.WithoutCancel(ctx)))
	}()
	return work(inner)
}

// Several acquires locks in the order of their names, within one patience. The Hold is that of all: it is lost when one of them is, and
// none is held if one cannot be acquired. Locks that are acquired one by one elsewhere must be in the same order.
func (l *Locks) Several(ctx context.Context, names []string, opts ...Option) (*Hold, error) {
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 0 || len(slices.Compact(slices.Clone(sorted))) < len(sorted) {
		return nil, public(strings.Join(names, ", "), "acquire", fmt.Errorf("%w: it needs names, each once", ErrArgument))
	}
	return l.acquire(ctx, "acquire", sorted, opts, (*claim).acquire)
}

// acquire acquires all locks or none.
func (l *Locks) acquire(
	ctx context.Context, op string, names []string, opts []Option, how func(*claim, context.Context) (*claim, error),
) (*Hold, error) {
	parts := make([]*claim, 0, len(names))
	for _, name := range names {
		c, err := l.claim(name, opts)
		if err == nil {
			if c, err = how(c, ctx); err == nil {
				parts = append(parts, c)
				err = l.keep(c)
			}
		}
		if err != nil {
			_ = newHold(parts).Release(context.WithoutCancel(ctx))
			return nil, public(name, op, err)
		}
	}
	return newHold(parts), nil
}

func (l *Locks) claim(name string, opts []Option) (*claim, error) {
	o, err := readOptions(name, opts)
	if err != nil {
		return nil, err
	}
	c := &claim{options: o, b: l.b, name: name, token: rand.Text(), locks: l}
	if o.label != "" {
		c.token = o.label + ":" + c.token
	}
	return c, l.keep(nil)
}

// keep notes a lock that Close releases, unless they are closed.
func (l *Locks) keep(c *claim) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.isClosed {
		return fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	if c != nil && c.isKept() {
		l.held[c] = struct{}{}
	}
	return nil
}

func (l *Locks) forget(c *claim) {
	l.mu.Lock()
	delete(l.held, c)
	l.mu.Unlock()
}

// Attach takes over a lock that Hold.Detach has left, by its token, with the kind and the lease of the options.
func (l *Locks) Attach(ctx context.Context, name, token string, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, "attach", []string{name}, opts, func(c *claim, ctx context.Context) (*claim, error) {
		if token == "" {
			return nil, fmt.Errorf("%w: it needs a token", ErrArgument)
		}
		c.token, c.isKnown, c.sentAt = token, true, time.Now()
		err := c.extend(ctx, c.lease, ownRetries)
		if err == nil && c.session {
			_, err = c.request(ctx, "", ownRetries)
		}
		if isNotHeld(err) {
			err = ErrLost
		}
		if err == nil {
			c.begin()
		}
		return c, err
	})
}

// Close ends all waits, releases what is still held, unless it has a lease that is not renewed, waits until the server has all releases,
// at most until ctx ends, and closes the connection if nothing else of the process uses it. No Hold can be released after that.
func (l *Locks) Close(ctx context.Context) error {
	l.mu.Lock()
	wasClosed := l.isClosed
	l.isClosed = true
	held := slices.Collect(maps.Keys(l.held))
	l.mu.Unlock()
	if wasClosed {
		return nil
	}
	for _, c := range held {
		c.mu.Lock()
		c.count = 1
		c.mu.Unlock()
	}
	abandon(held)
	// Waits end.
	l.b.hear("closed")
	defer l.b.leave()
	return l.b.settle(ctx, "", maxLease)
}
