package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"
)

type outcome int

const (
	notHeld outcome = iota // Ask again after a pause.
	again                  // Ask again at once.
	held
)

// acquire waits for the lock until the context ends. If it is not held then, for whatever reason, the server forgets the request. The result
// is the claim itself, or the one of the owner that holds the re-entrant lock already.
func (c *claim) acquire(ctx context.Context) (*claim, error) {
	if ctx.Err() != nil {
		return nil, timeout(ctx, nil)
	}
	place := c.b.queues.join(c.queueKey(), c.kind == shared, c.maxWaiters)
	if place == nil {
		return nil, fmt.Errorf("%w in this process", ErrQueueFull)
	}
	defer c.b.queues.leave(place)
	if place.come != nil {
		select {
		case <-place.come:
		case <-ctx.Done():
		}
	}
	if ctx.Err() != nil {
		// The server may be away although nothing was sent: if it has not replied lately, RELEASE shows it.
		c.isKnown = !c.b.wasHeardLately()
		return nil, c.over(ctx, nil)
	}
	if outer, err := c.enterOuter(ctx); outer != nil || err != nil {
		return outer, err
	}
	err := c.attempt(ctx, place.come != nil)
	switch {
	case err == nil:
		c.begin()
		return c, nil
	case ctx.Err() != nil && (isPassing(err) || errors.Is(err, ErrTimeout) || errors.Is(err, ctx.Err())):
		return nil, c.over(ctx, err)
	}
	c.withdraw()
	return nil, err
}

// over withdraws a request, before the next waiter asks, and returns the error of a wait that its context has ended. After a deadline, the
// reply to the withdrawal shows that the server is there.
func (c *claim) over(ctx context.Context, err error) error {
	answered := c.withdraw()
	switch {
	case isPassing(err):
		return timeout(ctx, err)
	case ctx.Err() == context.DeadlineExceeded && answered != nil:
		select {
		case <-answered:
		case <-time.After(late):
			return timeout(ctx, errSilent)
		}
	}
	return timeout(ctx, nil)
}

// timeout returns the error of a context that has ended, in an outage or without.
func timeout(ctx context.Context, outage error) error {
	if outage != nil {
		return fmt.Errorf("%w: %w: %w", ErrUnavailable, outage, ctx.Err())
	}
	return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
}

// tryAcquire asks once. It waits for releases of this process, and for nothing else.
func (c *claim) tryAcquire(ctx context.Context) (*claim, error) {
	if outer, err := c.enterOuter(ctx); outer != nil || err != nil {
		return outer, err
	}
	_ = c.b.settle(ctx, c.name, ownRetries)
	isHeld, err := c.request(ctx, "", ownRetries)
	switch {
	case err == nil && isHeld && ctx.Err() == nil:
		c.begin()
		return c, nil
	case err == nil && !isHeld:
		err = ErrTimeout
	case ctx.Err() != nil:
		err = timeout(ctx, err)
	}
	c.withdraw()
	return nil, err
}

// attempt asks for the lock until it is held or the context ends.
func (c *claim) attempt(ctx context.Context, isQueued bool) error {
	for pause := firstPause; ; {
		if err := c.locks.keep(nil); err != nil {
			return err
		}
		result, err := c.once(ctx, isQueued)
		switch {
		case ctx.Err() != nil:
			return cmp.Or(err, ErrTimeout)
		case err != nil && (!isPassing(err) || c.b.silentFor() > maxOutage):
			return err
		case err == nil && result == held:
			return nil
		}
		isQueued = result == again
		if !isQueued {
			sleep(ctx, pause)
			pause = min(2*pause, lastPause)
		}
	}
}

// once asks for the lock, and waits for it in the queue of the server. If this process waits for it already, it asks for an entry at once.
func (c *claim) once(ctx context.Context, isQueued bool) (outcome, error) {
	b, channel := c.b, ""
	if isQueued {
		channel = b.channelFor(c.name)
	}
	if channel == "" {
		if isHeld, err := c.request(ctx, "", 0); isHeld || err != nil {
			return held, err
		}
		if channel = b.channelFor(c.name); channel == "" || ctx.Err() != nil {
			return notHeld, nil
		}
	}
	events, stop := b.listen(c.token)
	defer stop()
	isHeld, err := c.request(ctx, channel, 0)
	switch codeOf(err) {
	case "NOSUBSCRIBER", "NOPERM", "ERR":
		// The server sends no message, or not here: in a cluster the slot may have moved.
		b.connOf(c.name).forgetChannel()
		return notHeld, nil
	}
	if isHeld || err != nil {
		return held, err
	}
	if !b.hasModule() {
		// It has gone, and the script has no queue.
		return notHeld, nil
	}
	select {
	case event := <-events:
		if event == "granted" {
			return held, nil
		}
	case <-time.After(silence):
	case <-ctx.Done():
	}
	// All other events have the same answer.
	return again, nil
}

// request asks for the lock, or with a channel for an entry in the queue of the server, and notes what the server may know of it. It counts
// once, however often it is sent.
func (c *claim) request(ctx context.Context, channel string, patience time.Duration) (bool, error) {
	c.mu.Lock()
	words := requestWords(c.name, c.token, &c.options)
	wasKnown, grace := c.isKnown, c.grace()
	c.isKnown, c.sentAt = true, time.Now()
	if c.graceSent == 0 || grace < c.graceSent {
		c.graceSent = grace
	}
	c.mu.Unlock()
	if channel != "" {
		wait := maxBlock
		if deadline, ok := ctx.Deadline(); ok {
			wait = time.Until(deadline)
		}
		words = waitWords(words, wait, channel, &c.options)
	}
	script := c.script(takeScript)
	answer, err := c.b.askBy(ctx, words, script, patience, func(link *conn, isAsking bool) chan reply {
		return c.sendInOrder(link, isAsking, func() []string { return c.b.wording(words, script) })
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDoubtful = c.isDoubtful || answer.isRepeated || errors.Is(err, errUnanswered)
	isForgotten := errors.Is(err, errNotSent) || codeOf(err) != "" || err == nil && answer.isNull()
	c.isKnown = wasKnown || c.isDoubtful || !isForgotten
	c.link = answer.from
	isHeld := err == nil && answer.kind == ':'
	if isHeld {
		c.graceSent = grace
	}
	return isHeld, err
}

// script returns the script that stands in for a command. Sessions and shares need the module.
func (c *claim) script(text string) string {
	if c.session || c.kind == shared {
		return ""
	}
	return text
}
