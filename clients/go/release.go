package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (c *claim) releaseWords() []string { return []string{"LOCK.RELEASE", c.name, c.token} }

// sendRelease sends RELEASE at once, before all that this process sends later.
func (c *claim) sendRelease() (*conn, chan reply) {
	c.order.Lock()
	defer c.order.Unlock()
	link := c.b.connOf(c.name)
	return link, link.send(c.b.wording(c.releaseWords(), c.script(releaseScript)), false)
}

// release releases the lock, and waits for the reply until the context ends. RELEASE is sent in any case, in the background if need be.
func (c *claim) release(ctx context.Context) error {
	c.mu.Lock()
	wasLost, isDoubtful := c.state != isHeld, c.isDoubtful
	if c.count--; c.count > 0 || c.state == isReleased {
		c.mu.Unlock()
		if wasLost {
			return ErrLost
		}
		return nil
	}
	c.finish(isReleased)
	c.mu.Unlock()
	link, call := c.sendRelease()
	r := link.await(ctx, call)
	err := r.failure()
	if isDoubtful || err != nil && !isNotHeld(err) {
		if r.err == nil || r.err != ctx.Err() {
			call <- r
		}
		answered := c.finishRelease(link, call)
		if err != nil && !isNotHeld(err) && ctx.Err() == nil {
			select {
			case r = <-answered:
			case <-ctx.Done():
			case <-time.After(ownRetries):
			}
			err = r.failure()
		}
	}
	switch {
	case wasLost, err == nil && r.value.isNull(), isNotHeld(err):
		return ErrLost
	case err != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("the reply was not awaited: %w", err)
	}
	return err
}

// withdraw releases the lock, or makes the server forget a request, of which it may know nothing: the result is nil then.
func (c *claim) withdraw() <-chan reply {
	c.mu.Lock()
	isKnown := c.isKnown
	c.mu.Unlock()
	if !isKnown {
		return nil
	}
	return c.finishRelease(c.sendRelease())
}

// finishRelease reads the reply to RELEASE in the background, and sends it again until the server replies or the lease has certainly ended.
// It is sent once more a second later if a copy of the request may be executed after it.
func (c *claim) finishRelease(link *conn, call chan reply) <-chan reply {
	c.mu.Lock()
	answered, isDoubtful, patience := make(chan reply, 1), c.isDoubtful, max(c.lease, c.confirmed)+maxBlock
	c.mu.Unlock()
	c.b.noteUnsent(c.name, 1)
	go func() {
		defer c.b.noteUnsent(c.name, -1)
		r := link.await(context.Background(), call)
		if err := r.failure(); err != nil && !isNotHeld(err) && c.b.ctx.Err() == nil {
			again, failure := c.b.ask(c.b.ctx, c.releaseWords(), c.script(releaseScript), patience)
			isLost := again.isRepeated || errors.Is(err, errUnanswered)
			if r = (reply{again.value, failure}); isLost && isNotHeld(failure) {
				// The first one has worked.
				r = reply{}
			}
			isDoubtful = isDoubtful || isLost
		}
		answered <- r
		if isDoubtful && sleep(c.b.ctx, retryRelease) {
			_, _ = c.b.ask(c.b.ctx, c.releaseWords(), c.script(releaseScript), 0)
		}
	}()
	return answered
}

func (b *backend) noteUnsent(name string, count int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.unsent[name] += count; b.unsent[name] == 0 {
		delete(b.unsent, name)
	}
}

// settle waits for the releases of a lock that are in the background, or without a name for all, but not long.
func (b *backend) settle(ctx context.Context, name string, limit time.Duration) error {
	isUnsent := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		return b.unsent[name] > 0 || name == "" && len(b.unsent) > 0
	}
	for until := time.Now().Add(limit); isUnsent() && time.Now().Before(until); {
		if !sleep(ctx, time.Millisecond) {
			return ctx.Err()
		}
	}
	return nil
}
