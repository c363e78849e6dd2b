package redislock

import (
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
	c *claim
	// parts are the holds of Several, which has no claim.
	parts   []*Hold
	once    sync.Once
	err     error
	cleanup runtime.Cleanup

	lostOnce sync.Once
	lost     chan struct{}
}

func newHold(c *claim) *Hold {
	h := &Hold{c: c}
	if c.renew || c.session {
		h.cleanup = runtime.AddCleanup(h, (*claim).collected, c)
	}
	return h
}

// all returns the holds of which this one consists.
func (h *Hold) all() []*Hold {
	if h.c != nil {
		return []*Hold{h}
	}
	return h.parts
}

// Name returns the name of the lock; several are separated by commas.
func (h *Hold) Name() string {
	names := []string{}
	for _, part := range h.all() {
		names = append(names, part.c.name)
	}
	return strings.Join(names, ", ")
}

// Release releases the lock. It is sent even if ctx has ended, which limits the wait for the reply alone; what is left of it is done in the
// background. The error is ErrLost if the lock was lost before. A second Release returns the result of the first.
func (h *Hold) Release(ctx context.Context) error {
	h.once.Do(func() {
		if h.c == nil {
			for _, part := range slices.Backward(h.parts) {
				h.err = errors.Join(h.err, part.Release(ctx))
			}
			return
		}
		h.cleanup.Stop()
		h.err = public(h.c.name, "release", h.c.release(ctx))
	})
	return h.err
}

// Extend sets the lease, from now on.
func (h *Hold) Extend(ctx context.Context, lease time.Duration) error {
	for _, part := range h.all() {
		if !isLease(lease) {
			return public(part.c.name, "extend", fmt.Errorf("%w: it needs a lease from 1 ms to 100 years", ErrArgument))
		}
		if err := part.asHolder("extend", func(c *claim) error { return c.extend(ctx, lease, false) }); err != nil {
			return err
		}
	}
	return nil
}

// Fence returns the next fencing token of the lock: a number higher than all that its holders had before. The resource refuses a write
// whose token is lower than one that it has seen. It needs the module.
func (h *Hold) Fence(ctx context.Context) (token int64, err error) {
	if h.c == nil {
		return 0, public(h.Name(), "fence", fmt.Errorf("%w: several locks have no common token", ErrArgument))
	}
	err = h.asHolder("fence", func(c *claim) error {
		cmd, err := c.fenceCommand(c.b.isCluster.Load())
		if err != nil {
			return err
		}
		answer, _, _, err := c.b.ask(ctx, cmd)
		token = answer.num
		return err
	})
	return token, err
}

func (c *claim) fenceCommand(inCluster bool) (*command, error) {
	counter, err := counterOf(c.name, inCluster)
	return &command{key: c.name, words: []string{"LOCK.FENCE", c.name, c.token, counter}}, err
}

// asHolder runs a command of the holder. The lock is lost if the server says so.
func (h *Hold) asHolder(op string, run func(c *claim) error) error {
	c := h.c
	c.mu.Lock()
	ok := c.state == isHeld
	c.mu.Unlock()
	if !ok {
		return lostError(c.name, op)
	}
	err := run(c)
	if isNotHeld(err) {
		c.mu.Lock()
		c.lose()
		c.mu.Unlock()
		err = ErrLost
	}
	return public(c.name, op, err)
}

// Lost returns a channel that is closed when the lock is lost.
func (h *Hold) Lost() <-chan struct{} {
	h.lostOnce.Do(func() {
		h.lost = make(chan struct{})
		// It must not keep the Hold.
		lost := h.lost
		closeOnce := sync.OnceFunc(func() { close(lost) })
		for _, part := range h.all() {
			part.c.onEnd(func(cause error) {
				if cause != nil {
					closeOnce()
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
	removes := []func(){}
	for _, part := range h.all() {
		removes = append(removes, part.c.onEnd(cancel))
	}
	return ctx, func() {
		cancel(nil)
		for _, remove := range removes {
			remove()
		}
		runtime.KeepAlive(h)
	}
}

// do runs work while the lock is held.
func (h *Hold) do(ctx context.Context, work func(ctx context.Context) error) (err error) {
	inner, stop := h.Context(ctx)
	defer func() {
		stop()
		if failure := h.Release(context.WithoutCancel(ctx)); err == nil || failure != nil {
			err = errors.Join(err, failure)
		}
	}()
	return work(inner)
}

// Detach leaves the lock as it is, and returns its token: Attach takes it over by that, in another process as well.
func (h *Hold) Detach() (token string, err error) {
	err = public(h.Name(), "detach", fmt.Errorf("%w: several locks, sessions and a lock that is acquired twice stay where they are", ErrArgument))
	c := h.c
	if c == nil || c.session {
		return "", err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != isHeld:
		return "", lostError(c.name, "detach")
	case c.count > 1:
		return "", err
	}
	h.once.Do(func() { h.err = lostError(c.name, "release") })
	h.cleanup.Stop()
	c.end(isReleased, nil)
	return c.token, nil
}

// onEnd calls a function with the cause when the lock is lost, and with nil when it is released.
func (c *claim) onEnd(call context.CancelCauseFunc) (remove func()) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch c.state {
	case isHeld:
	case isLost:
		call(lostError(c.name, "hold"))
		return func() {}
	default:
		call(nil)
		return func() {}
	}
	if c.ends == nil {
		c.ends = map[*context.CancelCauseFunc]struct{}{}
	}
	c.ends[&call] = struct{}{}
	c.startWatch()
	return func() {
		c.mu.Lock()
		delete(c.ends, &call)
		c.mu.Unlock()
	}
}

// collected releases a lock whose Hold was collected by the garbage collection.
func (c *claim) collected() {
	c.mu.Lock()
	isOurs := c.state == isHeld
	c.mu.Unlock()
	if isOurs {
		c.b.log().Warn("a lock was not released before its Hold was collected", "lock", c.name)
		c.abandon()
	}
}

// abandon releases a lock in the background.
func (c *claim) abandon() {
	c.mu.Lock()
	if c.state != isReleased {
		c.end(isReleased, nil)
	}
	c.mu.Unlock()
	c.withdraw()
}
