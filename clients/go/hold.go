package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"
)

// Hold is a lock that is held, or several. It is safe for concurrent use. Keep it until it is released: a Hold that the garbage collection
// takes is released with a warning, unless it has a lease that is not renewed.
type Hold struct {
	parts   []*claim
	once    sync.Once
	err     error
	cleanup runtime.Cleanup

	lostOnce sync.Once
	lost     chan struct{}
}

func newHold(parts []*claim) *Hold {
	h := &Hold{parts: parts}
	if len(parts) > 0 && parts[0].isKept() {
		h.cleanup = runtime.AddCleanup(h, abandon, parts)
	}
	return h
}

// abandon releases locks in the background whose Hold was collected by the garbage collection, or whose Locks were closed.
func abandon(parts []*claim) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, c := range parts {
		if err := c.release(ctx); !errors.Is(err, ErrLost) {
			c.b.logger.Load().Warn("a lock was not released before its Hold was collected or its Locks were closed", "lock", c.name)
		}
	}
}

// Name returns the name of the lock; several are separated by commas.
func (h *Hold) Name() string {
	names := []string{}
	for _, c := range h.parts {
		names = append(names, c.name)
	}
	return strings.Join(names, ", ")
}

// Release releases the lock. It is sent even if ctx has ended, which limits the wait for the reply alone; what is left of it is done in the
// background. The error is ErrLost if the lock was lost before. A second Release returns the result of the first.
func (h *Hold) Release(ctx context.Context) error {
	h.once.Do(func() {
		h.cleanup.Stop()
		for _, c := range slices.Backward(h.parts) {
			h.err = join(h.err, public(c.name, "release", c.release(ctx)))
		}
	})
	return h.err
}

// join joins errors, and leaves one as it is.
func join(one, two error) error {
	if one == nil || two == nil {
		return cmp.Or(one, two)
	}
	return errors.Join(one, two)
}

// Extend sets the lease, from now on.
func (h *Hold) Extend(ctx context.Context, lease time.Duration) error {
	for _, c := range h.parts {
		err := fmt.Errorf("%w: it needs a lease from 1 ms to 100 years", ErrArgument)
		if isLease(lease) {
			err = c.asHolder(func() error { return c.extend(ctx, lease, ownRetries) })
		}
		if err != nil {
			return public(c.name, "extend", err)
		}
	}
	return nil
}

// Fence returns the next fencing token of the lock: a number higher than all that its holders had before. The resource refuses a write
// whose token is lower than one that it has seen. It needs the module.
func (h *Hold) Fence(ctx context.Context) (token int64, err error) {
	if len(h.parts) > 1 {
		return 0, public(h.Name(), "fence", fmt.Errorf("%w: several locks have no common token", ErrArgument))
	}
	c := h.parts[0]
	err = c.asHolder(func() error {
		words, err := c.fenceWords(c.b.isCluster.Load())
		if err != nil {
			return err
		}
		answer, err := c.b.ask(ctx, words, "", ownRetries)
		token = answer.num
		return err
	})
	return token, public(c.name, "fence", err)
}

// Lost returns a channel that is closed when the lock is lost.
func (h *Hold) Lost() <-chan struct{} {
	h.lostOnce.Do(func() {
		h.lost = make(chan struct{})
		// It must not keep the Hold.
		lost := h.lost
		report := sync.OnceFunc(func() { close(lost) })
		for _, c := range h.parts {
			c.onEnd(func(cause error) {
				if errors.Is(cause, ErrLost) {
					report()
				}
			})
		}
	})
	return h.lost
}

// Context returns a context for the work under the lock. It ends when the lock is lost, with a cause that is ErrLost, when it is
// released, and with stop.
func (h *Hold) Context(parent context.Context) (ctx context.Context, stop context.CancelFunc) {
	ctx, cancel := context.WithCancelCause(parent)
	stops := []func() bool{}
	for _, c := range h.parts {
		stops = append(stops, c.onEnd(cancel))
	}
	return ctx, func() {
		for _, stop := range stops {
			stop()
		}
		cancel(nil)
		runtime.KeepAlive(h)
	}
}

// Detach leaves the lock as it is, and returns its token: Attach takes it over by that, in another process as well.
func (h *Hold) Detach() (token string, err error) {
	c := h.parts[0]
	// An extension that is sent at the moment is sent before.
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case len(h.parts) > 1 || c.session || c.count > 1:
		err = fmt.Errorf("%w: several locks, sessions and a lock that is acquired twice stay where they are", ErrArgument)
		return "", public(h.Name(), "detach", err)
	case c.state != isHeld:
		return "", lostError(c.name, "detach")
	}
	h.once.Do(func() { h.err = lostError(c.name, "release") })
	h.cleanup.Stop()
	c.finish(isReleased)
	return c.token, nil
}

// onEnd calls a function with the cause when the lock is lost or released, unless it is stopped before.
func (c *claim) onEnd(call context.CancelCauseFunc) (stop func() bool) {
	c.mu.Lock()
	ended := c.watch()
	c.mu.Unlock()
	if ended.Err() != nil {
		call(context.Cause(ended))
	}
	return context.AfterFunc(ended, func() { call(context.Cause(ended)) })
}
