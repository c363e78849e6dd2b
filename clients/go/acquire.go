package redislock

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
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
	if !place.hasComeBy(ctx) {
		// Nothing was sent yet. The server may be away all the same.
		if ctx.Err() == context.DeadlineExceeded {
			return nil, timeout(ctx, c.b.confirm(c.name))
		}
		return nil, timeout(ctx, nil)
	}
	if outer, err := c.enterOuter(ctx); outer != nil || err != nil {
		return outer, err
	}
	err := c.attempt(ctx, place.come != nil)
	if err != nil {
		// It is sent before the next waiter asks.
		answered := c.withdraw()
		if ctx.Err() != nil && (isPassing(err) || errors.Is(err, ErrTimeout) || errors.Is(err, ctx.Err())) {
			err = c.over(ctx, err, answered)
		}
		return nil, err
	}
	return c, nil
}

// over returns the error of a wait that its context has ended. After a deadline, the reply to the withdrawal shows that the server is
// there.
func (c *claim) over(ctx context.Context, err error, answered <-chan struct{}) error {
	if isDisconnected(err) || codeOf(err) != "" || !c.isKnown && !errors.Is(err, ErrTimeout) {
		return timeout(ctx, err)
	}
	if ctx.Err() != context.DeadlineExceeded {
		return timeout(ctx, nil)
	}
	timer := time.NewTimer(late)
	defer timer.Stop()
	select {
	case <-answered:
		return timeout(ctx, nil)
	case <-timer.C:
		return timeout(ctx, errSilent)
	}
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
	isHeld, err := c.take(ctx, false)
	switch {
	case err == nil && isHeld && ctx.Err() == nil:
		return c, nil
	case err == nil && !isHeld:
		return nil, ErrTimeout
	case ctx.Err() != nil:
		err = timeout(ctx, err)
	}
	c.withdraw()
	return nil, err
}

// hasComeBy waits for the turn. It returns false if the context ends before.
func (t *turn) hasComeBy(ctx context.Context) bool {
	if t.come == nil {
		return true
	}
	select {
	case <-t.come:
		return ctx.Err() == nil
	case <-ctx.Done():
		return false
	}
}

// attempt asks for the lock until it is held or the context ends.
func (c *claim) attempt(ctx context.Context, isQueued bool) error {
	for pause := firstPause; ; {
		result, err := c.once(ctx, isQueued)
		since, wasHeard := c.b.silentFor()
		switch {
		case ctx.Err() != nil:
			return cmp.Or(err, ErrTimeout)
		case err != nil && (!isPassing(err) || !wasHeard || since > maxOutage):
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
	b := c.b
	link := b.connOf(c.name)
	if err := link.isReady(ctx); err != nil {
		return notHeld, err
	}
	channel := ""
	if isQueued && b.hasModule() {
		channel = link.subscribe(c.name)
	}
	if channel == "" {
		if isHeld, err := c.take(ctx, true); isHeld || err != nil {
			return held, err
		}
		if b.hasModule() && ctx.Err() == nil {
			channel = link.subscribe(c.name)
		}
	}
	if channel == "" {
		return notHeld, nil
	}
	events, stop := b.listen(c.token)
	defer stop()
	isHeld, err := c.join(ctx, channel)
	switch codeOf(err) {
	case "NOSUBSCRIBER", "NOPERM", "ERR", "UNKNOWN":
		// The server sends no message, or not here: in a cluster the slot may have moved.
		link.forgetChannel()
		return notHeld, nil
	}
	if errors.Is(err, ErrModuleNeeded) && c.script(takeScript) != "" {
		// The module is gone. The script goes on.
		return notHeld, nil
	}
	if isHeld || err != nil {
		return held, err
	}
	c.logWait(ctx)
	timer := time.NewTimer(silence)
	defer timer.Stop()
	select {
	case event := <-events:
		if event == "granted" {
			return held, nil
		}
	case <-timer.C:
	case <-ctx.Done():
	}
	// All other events have the same answer.
	return again, nil
}

// take asks for the lock without waiting. It counts once, however often it is sent.
func (c *claim) take(ctx context.Context, isOnce bool) (bool, error) {
	return c.request(ctx, &command{words: c.requestWords(), script: c.script(takeScript), isOnce: isOnce})
}

// join asks for the lock, or for an entry in the queue of the server.
func (c *claim) join(ctx context.Context, channel string) (bool, error) {
	wait := maxBlock
	if deadline, ok := ctx.Deadline(); ok {
		wait = time.Until(deadline)
	}
	return c.request(ctx, &command{words: waitWords(c.requestWords(), wait, channel, &c.options), isOnce: true})
}

func (c *claim) requestWords() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return requestWords(c.name, c.token, &c.options)
}

// request sends a request for the lock, and notes what the server may know of it.
func (c *claim) request(ctx context.Context, cmd *command) (bool, error) {
	cmd.key = c.name
	c.mu.Lock()
	wasKnown := c.isKnown
	c.isKnown, c.sentAt = true, time.Now()
	c.mu.Unlock()
	answer, link, isRepeated, err := c.b.ask(ctx, cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isDoubtful = c.isDoubtful || isRepeated || wasSent(err)
	isForgotten := isDisconnected(err) || codeOf(err) != "" || err == nil && answer.isNull()
	c.isKnown = wasKnown || c.isDoubtful || !isForgotten
	c.link = link
	return err == nil && answer.kind == ':', err
}

// script returns the script that stands in for a command. Sessions and shares need the module.
func (c *claim) script(text string) string {
	if c.session || c.kind == shared {
		return ""
	}
	return text
}

// logWait logs who holds the lock for which this process waits.
func (c *claim) logWait(ctx context.Context) {
	if !c.b.log().Enabled(ctx, slog.LevelDebug) {
		return
	}
	reply, _, err := c.b.exchange(ctx, c.name, []string{"LOCK.INFO", c.name})
	if err == nil {
		c.b.log().Debug("waits for a lock", "lock", c.name, "token", c.token,
			"holder", labelOf(field(reply, "owner").text), "waiters", field(reply, "waiters").num)
	}
}
