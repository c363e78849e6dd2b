package redislock

import (
	"context"
	"time"
)

// nextRenewal returns when a lease is renewed that begins at a time.
func (c *claim) nextRenewal(from time.Time, lease time.Duration) time.Time {
	if !c.isKept() {
		return time.Time{}
	}
	return from.Add(lease / renewals)
}

// extend sets the lease, from now on. No renewal with the former lease follows, unless it fails.
func (c *claim) extend(ctx context.Context, lease, patience time.Duration) error {
	c.mu.Lock()
	askedAt, renewAt := time.Now(), c.renewAt
	c.renewAt = c.nextRenewal(askedAt, lease)
	// The lease may be shorter even if the reply is lost.
	if end := askedAt.Add(lease); end.Before(c.endsAt) {
		c.endsAt = end
	}
	c.schedule()
	c.mu.Unlock()
	_, err := c.b.ask(ctx, c.extendWords(lease), c.script(extendScript), patience)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case err == nil:
		c.lease = lease
		if !c.endsAt.IsZero() {
			c.endsAt = askedAt.Add(lease)
		}
	case !c.certainEnd.IsZero() && c.certainEnd.Before(c.endsAt):
		c.endsAt = c.certainEnd
		fallthrough
	default:
		c.renewAt = renewAt
	}
	c.certainEnd = time.Time{}
	c.schedule()
	return err
}

// renewNow renews the lease, or gives the lock to a session of the present connection. Only the server's word ends the lock.
func (c *claim) renewNow() {
	c.mu.Lock()
	if c.isRenewing || c.state != isHeld {
		c.mu.Unlock()
		return
	}
	c.isRenewing = true
	isMoved := c.session && c.b.connOf(c.name) != c.sessionOn
	if isMoved && c.sessionOn != nil {
		// The grace period has begun.
		c.sessionOn, c.endsAt = nil, time.Now().Add(c.grace()-retry)
	}
	lease := c.lease
	c.mu.Unlock()
	err := c.asHolder(func() error {
		err := c.extend(c.b.ctx, lease, 0)
		if err == nil && isMoved {
			err = c.resume()
		}
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRenewing = false
	switch {
	case isPassing(err):
		c.renewAt = c.nextRenewal(time.Now(), renewals*retry)
	case err != nil:
		c.renewAt = c.nextRenewal(time.Now(), max(lease, renewals*retry))
	}
	c.schedule()
}

// resume asks for the lock that is held, which begins a session. The request alone would acquire a lock that is free by now.
func (c *claim) resume() error {
	isOurs, err := c.request(c.b.ctx, "", 0)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != isHeld:
		// It was released in between.
		go c.withdraw()
	case err == nil && !isOurs:
		return serverError("NOTHELD the lock was lost with its session")
	case err == nil:
		c.sessionOn, c.endsAt = c.link, time.Time{}
	}
	return err
}

// checkSession continues the session if its connection is lost, or the slot of the key has moved.
func (c *claim) checkSession() {
	c.mu.Lock()
	isMoved := c.session && c.state == isHeld && !c.isRenewing && c.b.connOf(c.name) != c.sessionOn
	c.mu.Unlock()
	if isMoved {
		go c.renewNow()
	}
}
