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

// isCut tells that a session has no connection.
func (c *claim) isCut() bool { return c.session && c.sessionOn == nil }

// certain returns how long the server certainly keeps the lock after it has set a lease: it may notice later that the connection of the
// session is lost, and then gives it the grace period.
func (c *claim) certain(lease time.Duration) time.Duration {
	if c.isCut() {
		return min(lease, c.graceSent)
	}
	return lease
}

// sendInOrder sends a command of this claim before those that it sends later. After a release nothing is sent that could take the lock
// again. Note runs before, with c.mu, and returns the words.
func (c *claim) sendInOrder(link *conn, isAsking bool, note func() []string) chan reply {
	c.order.Lock()
	defer c.order.Unlock()
	c.mu.Lock()
	if c.state > isHeld {
		c.mu.Unlock()
		return failed(ErrLost)
	}
	words := note()
	c.mu.Unlock()
	return link.send(words, isAsking)
}

// failed returns where the error of a command goes that is not sent.
func failed(err error) chan reply {
	call := make(chan reply, 1)
	call <- reply{err: err}
	return call
}

// extend sets the lease, from now on, or renews it if the lease is 0. No renewal with the former lease follows, unless it fails. A reply
// counts if the lease was not changed after its command was sent.
func (c *claim) extend(ctx context.Context, lease, patience time.Duration) error {
	var (
		sentAt  time.Time
		sent    time.Duration
		changes int
	)
	note := func() []string {
		if sentAt = time.Now(); lease != 0 {
			c.lease = lease
			c.changes++
		}
		sent, changes = c.lease, c.changes
		// The lease may be shorter even if the reply is lost.
		c.shorten(sentAt.Add(sent))
		if !c.isCut() {
			c.renewAt = c.nextRenewal(sentAt, sent)
		}
		c.schedule()
		return c.b.wording(c.extendWords(sent), c.script(extendScript))
	}
	_, err := c.b.askBy(ctx, c.extendWords(lease), c.script(extendScript), patience, func(link *conn, isAsking bool) chan reply {
		// By the time that it can be sent, the lock may be handed over.
		select {
		case <-link.opened:
		case <-ctx.Done():
			return failed(ctx.Err())
		}
		return c.sendInOrder(link, isAsking, note)
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	isLatest := changes == c.changes
	switch {
	case err == nil && isLatest:
		c.confirmed, c.certainEnd = sent, time.Time{}
		if end := sentAt.Add(c.certain(sent)); !c.endsAt.IsZero() && end.After(c.endsAt) {
			c.endsAt = end
		}
	case err != nil:
		if !c.certainEnd.IsZero() {
			c.shorten(c.certainEnd)
			c.certainEnd = time.Time{}
		}
		if lease != 0 && isLatest {
			c.lease = c.confirmed
			c.changes++
			c.renewEarly()
		}
	}
	c.schedule()
	return err
}

// shorten notes that the lease may end at a time.
func (c *claim) shorten(end time.Time) {
	if end.Before(c.endsAt) {
		c.endsAt = end
	}
}

// renewEarly has the lease renewed that is left after a failure, before it ends.
func (c *claim) renewEarly() {
	switch {
	case c.isCut():
	case c.endsAt.IsZero():
		c.renewAt = c.nextRenewal(time.Now(), c.lease)
	default:
		c.renewAt = c.nextRenewal(c.endsAt.Add(-c.lease), c.lease)
	}
}

// renewNow renews the lease, or gives the lock to a session of the present connection. Only the server's word ends the lock.
func (c *claim) renewNow() {
	c.mu.Lock()
	c.noteCut()
	if c.isRenewing || c.state != isHeld {
		c.mu.Unlock()
		return
	}
	c.isRenewing = true
	wasCut, changes := c.isCut(), c.changes
	c.schedule()
	c.mu.Unlock()
	err := c.asHolder(func() error {
		err := c.extend(c.b.ctx, 0, 0)
		if err == nil && wasCut {
			err = c.resume()
		}
		return err
	})
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRenewing = false
	// Otherwise an extension of the caller has set the time.
	if err != nil && (c.isCut() || changes == c.changes) {
		pause := renewals * retry
		if !isPassing(err) {
			pause = max(c.certain(c.lease), pause)
		}
		c.renewAt = c.nextRenewal(time.Now(), pause)
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
		if c.isDoubtful {
			// The server may execute the request after RELEASE.
			go c.withdraw()
		}
	case err == nil && !isOurs:
		return serverError("NOTHELD the lock was lost with its session")
	case err == nil:
		c.sessionOn, c.endsAt, c.renewAt = c.link, time.Time{}, c.nextRenewal(c.sentAt, c.lease)
		c.noteCut()
	}
	return err
}

// noteCut notes that the connection of the session is lost, or that the slot of the key has moved: the server keeps the lock for the grace
// period that was sent. The session is to be continued.
func (c *claim) noteCut() {
	if c.state == isHeld && c.sessionOn != nil && c.b.connOf(c.name) != c.sessionOn {
		now := time.Now()
		c.sessionOn, c.endsAt, c.renewAt = nil, now.Add(c.graceSent-retry), now
		c.schedule()
	}
}
