package redislock

import (
	"context"
	"errors"
	"fmt"
	"time"
)

func (c *claim) releaseCommand() *command {
	return &command{key: c.name, words: []string{"LOCK.RELEASE", c.name, c.token}, script: c.script(releaseScript)}
}

// release releases the lock, and waits for the reply until the context ends. RELEASE is sent in any case, in the background if need be.
func (c *claim) release(ctx context.Context) error {
	c.mu.Lock()
	if c.state == isReleased {
		c.mu.Unlock()
		return ErrLost
	}
	if c.count--; c.count > 0 {
		defer c.mu.Unlock()
		if c.state != isHeld {
			return ErrLost
		}
		return nil
	}
	wasLost := c.state != isHeld
	c.end(isReleased, nil)
	isDoubtful := c.isDoubtful
	c.mu.Unlock()
	answer, _, isRepeated, err := c.b.ask(ctx, c.releaseCommand())
	switch {
	case err == nil && isDoubtful, isPassing(err), err != nil && errors.Is(err, ctx.Err()):
		c.withdraw()
	}
	switch {
	case wasLost, err == nil && answer.isNull(), isNotHeld(err) && !isRepeated:
		return ErrLost
	case isNotHeld(err):
		// After a lost connection, a repeated RELEASE finds nothing if the first one has worked.
		return nil
	case err != nil && errors.Is(err, ctx.Err()):
		return fmt.Errorf("the reply was not awaited: %w", err)
	}
	return err
}

// withdraw releases the lock, or makes the server forget a request. What is not done at once is done in the background, until the server
// replies or the lease has certainly ended; answered is closed then.
func (c *claim) withdraw() (answered chan struct{}) {
	answered = make(chan struct{})
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.isKnown {
		close(answered)
		return answered
	}
	var call chan reply
	if link := c.b.connOf(c.name); link.isReadyNow() && c.b.hasModule() {
		call = link.send(c.releaseCommand().words, false)
	}
	until := time.Now().Add(c.lease + maxBlock)
	c.b.noteUnsent(c.name, 1)
	go func() {
		defer c.b.noteUnsent(c.name, -1)
		defer close(answered)
		c.finishRelease(call, until)
	}()
	return answered
}

// finishRelease sends RELEASE until the server replies, and a second later once more if a copy of the request may be executed after it.
func (c *claim) finishRelease(call chan reply, until time.Time) {
	for isFirst := true; isFirst || time.Now().Before(until) && sleep(c.b.ctx, retry); isFirst = false {
		var err error
		if isFirst && call != nil {
			err = (<-call).failure()
		} else {
			_, _, _, err = c.b.ask(c.b.ctx, c.releaseCommand())
		}
		switch codeOf(err) {
		case "MOVED", "ASK", "UNKNOWN":
			continue
		}
		c.mu.Lock()
		isDoubtful := c.isDoubtful
		c.isDoubtful = err != nil && isPassing(err) && (isDoubtful || wasSent(err))
		c.mu.Unlock()
		if err == nil || !isPassing(err) {
			if isDoubtful && sleep(c.b.ctx, retryRelease) {
				_, _, _, _ = c.b.ask(c.b.ctx, c.releaseCommand())
			}
			return
		}
	}
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
