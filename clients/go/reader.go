package redislock

import (
	"context"
	"errors"
	"os"
	"time"
)

const (
	// rest is how long the goroutine of a connection leaves the reading to callers that send nothing.
	rest = 5 * time.Millisecond
	// noRest is how long it does not after it was woken: to change turns costs more than it saves.
	noRest = 100 * time.Millisecond
)

// await returns the reply to a command. If the context ends before, there is nobody to read that.
func (c *conn) await(ctx context.Context, call chan reply) reply {
	if c.b.isIdle() {
		select {
		case c.reader <- struct{}{}:
			c.readUntil(ctx, call)
			<-c.reader
		default:
		}
	}
	c.mu.Lock()
	isUnread := c.isResting && len(c.calls) > 0
	c.mu.Unlock()
	if isUnread {
		tell(c.wake, struct{}{})
	}
	select {
	case r := <-call:
		return r
	case <-ctx.Done():
		return reply{err: ctx.Err()}
	}
}

// readUntil reads until a call has its reply or the context ends.
func (c *conn) readUntil(ctx context.Context, call chan reply) {
	for len(call) == 0 && ctx.Err() == nil {
		ended := make(chan struct{})
		stop := context.AfterFunc(ctx, func() {
			_ = c.net.SetReadDeadline(time.Unix(1, 0))
			close(ended)
		})
		_, err := c.in.Peek(1)
		if !stop() {
			<-ended
			_ = c.net.SetReadDeadline(time.Time{})
		}
		if err == nil {
			err = c.read(false)
		}
		if err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			c.close(err)
		}
	}
}

// rest leaves the reading to callers as long as they send commands, and nobody needs a reply that they do not read.
func (c *conn) rest() {
	for sent, isWoken := -1, false; c.isResting; {
		select {
		case <-c.wake:
			isWoken, c.wokenAt = true, time.Now()
		case <-time.After(rest):
		}
		c.mu.Lock()
		c.isResting = !isWoken && c.sent != sent
		sent = c.sent
		c.mu.Unlock()
		if !c.isResting {
			c.reader <- struct{}{}
		}
	}
}

// read passes on one reply or message of the server. The goroutine may rest after one.
func (c *conn) read(byGoroutine bool) error {
	next, err := readValue(c.in)
	if err != nil {
		return err
	}
	// The reply to SSUBSCRIBE is a message.
	isMessage := next.kind == '>' && len(next.list) > 0 && next.list[0].text != "ssubscribe"
	mayRest := byGoroutine && c.mayRest && c.b.isIdle() && time.Since(c.wokenAt) > noRest
	var call chan reply
	c.mu.Lock()
	c.quiet = 0
	if !isMessage && len(c.calls) > 0 {
		call, c.calls = c.calls[0], c.calls[1:]
		if mayRest && len(c.calls) == 0 {
			c.isResting = true
			<-c.reader
		}
	}
	c.mu.Unlock()
	switch {
	case isMessage:
		c.message(next.list)
	case call == nil:
		return errMalformed
	default:
		c.b.heard()
		call <- reply{value: next}
	}
	return nil
}
