package redislock

import (
	"context"
	"sync"
	"time"
)

type state int

const (
	isNew state = iota
	isHeld
	isLost
	isReleased
)

// claim is one acquisition of a lock, with a token of its own: the request, and then the lock that is held. Its end is that of the lease
// by the local clock, counted from before the request; while a session is open, there is none.
//
//	held   the end has come, or the server says that the token does not hold it   lost: the contexts end
//	held   a third of the lease has passed, renewed or a session                  EXTEND; its reply sets the end
//	held   the connection of a session is lost                                    the end is that of the grace period; EXTEND, then
//	                                                                              the request: the session goes on
//	held   detach                                                                 released, nothing is sent
//	any    release                                                                released: RELEASE
type claim struct {
	options
	b     *backend
	name  string
	token string
	locks *Locks

	mu sync.Mutex
	// isKnown: the server may keep a queue entry or the lock for it.
	isKnown bool
	// isDoubtful: a copy of the request was lost with its connection, and may be executed late.
	isDoubtful bool
	// sentAt is before the last request, from where the lease counts, and link is where it was sent.
	sentAt time.Time
	link   *conn

	state state
	// count is how many times the owner of a re-entrant lock has acquired it.
	count int
	// endsAt is zero while a session is open.
	endsAt     time.Time
	renewAt    time.Time
	isRenewing bool
	sessionOn  *conn
	timer      *time.Timer
	isWatched  bool
	ends       map[*context.CancelCauseFunc]struct{}
}

// queueKey names the local queue. Each owner of a re-entrant lock has its own.
func (c *claim) queueKey() string {
	if c.kind != reentrant {
		return c.name
	}
	return c.name + "\x00" + c.owner
}

// enterOuter notes one more acquisition by the owner of a re-entrant lock, if it holds the lock already. It returns its claim then.
func (c *claim) enterOuter(ctx context.Context) (*claim, error) {
	c.b.mu.Lock()
	outer := c.b.owners[c.queueKey()]
	c.b.mu.Unlock()
	if c.kind != reentrant || outer == nil {
		return nil, nil
	}
	outer.mu.Lock()
	isShort := !outer.endsAt.IsZero() && time.Now().Add(c.lease).After(outer.endsAt) && !outer.renew
	now := outer.state
	if now == isHeld {
		outer.count++
	}
	outer.mu.Unlock()
	switch {
	case now == isReleased:
		return nil, nil
	case now == isLost:
		return nil, ErrLost
	case !isShort:
		return outer, nil
	}
	err := outer.extend(ctx, c.lease, false)
	if err == nil {
		return outer, nil
	}
	outer.mu.Lock()
	defer outer.mu.Unlock()
	outer.count--
	if isNotHeld(err) {
		outer.lose()
		err = ErrLost
	}
	return nil, err
}

// begin notes that the lock is held. A grant that comes late has lost a part of its lease: EXTEND follows, and its reply sets the end.
func (c *claim) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.state, c.count = isHeld, 1
	end := c.sentAt.Add(c.lease)
	if c.session {
		c.sessionOn = c.link
		c.startWatch()
	} else {
		c.endsAt = end
	}
	if c.session || c.renew {
		c.renewAt = c.sentAt.Add(c.lease / renewals)
	}
	if c.kind == reentrant {
		c.b.mu.Lock()
		c.b.owners[c.queueKey()] = c
		c.b.mu.Unlock()
	}
	if !c.session && now.Sub(c.sentAt) > c.lease/latePart {
		c.endsAt = now.Add(c.lease)
		go c.confirm(end, c.lease)
	}
	c.schedule()
}

// confirm extends a lock that was granted late. Without a reply, what is certain counts.
func (c *claim) confirm(certain time.Time, lease time.Duration) {
	err := c.extend(c.b.ctx, lease, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	if isNotHeld(err) {
		c.lose()
	} else if err != nil && certain.Before(c.endsAt) {
		c.endsAt = certain
		c.schedule()
	}
}

func (c *claim) extendCommand(lease time.Duration) *command {
	return &command{key: c.name, words: []string{"LOCK.EXTEND", c.name, c.token, "PX", millis(lease)}, script: c.script(extendScript)}
}

// extend sets the lease, from now on. No renewal with the former lease follows, unless it fails.
func (c *claim) extend(ctx context.Context, lease time.Duration, isOnce bool) error {
	c.mu.Lock()
	askedAt, renewAt := time.Now(), c.renewAt
	if !renewAt.IsZero() {
		c.renewAt = askedAt.Add(lease / renewals)
	}
	// The lease may be shorter even if the reply is lost.
	if end := askedAt.Add(lease); !c.endsAt.IsZero() && end.Before(c.endsAt) {
		c.endsAt = end
	}
	c.schedule()
	c.mu.Unlock()
	cmd := c.extendCommand(lease)
	cmd.isOnce = isOnce
	_, _, _, err := c.b.ask(ctx, cmd)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err != nil {
		c.renewAt = renewAt
	} else {
		c.lease = lease
		if !c.endsAt.IsZero() {
			c.endsAt = askedAt.Add(lease)
		}
	}
	c.schedule()
	return err
}

// startWatch makes the server report the changes of the key.
func (c *claim) startWatch() {
	if !c.isWatched && c.state == isHeld {
		c.isWatched = true
		c.b.watch(c)
		c.schedule()
	}
}

// schedule sets the timer for what comes next: the renewal or the end. A lock that is neither watched nor renewed has none.
func (c *claim) schedule() {
	if c.state != isHeld || !c.isWatched && c.renewAt.IsZero() {
		return
	}
	at := c.endsAt
	if !c.isRenewing && !c.renewAt.IsZero() && (at.IsZero() || c.renewAt.Before(at)) {
		at = c.renewAt
	}
	switch {
	case at.IsZero():
	case c.timer == nil:
		c.timer = time.AfterFunc(time.Until(at), c.due)
	default:
		c.timer.Reset(time.Until(at))
	}
}

func (c *claim) due() {
	c.mu.Lock()
	now := time.Now()
	isOver := c.state == isHeld && !c.endsAt.IsZero() && !now.Before(c.endsAt)
	if isOver && now.Sub(c.endsAt) > late/10 {
		// This process has stalled: the replies that came meanwhile are read first.
		c.mu.Unlock()
		time.Sleep(late / 100)
		c.mu.Lock()
		isOver = c.state == isHeld && !c.endsAt.IsZero() && !now.Before(c.endsAt)
	}
	if isOver {
		c.lose()
	}
	isDue := !c.renewAt.IsZero() && !now.Before(c.renewAt)
	if !isDue {
		c.schedule()
	}
	c.mu.Unlock()
	if isDue {
		c.renewNow()
	}
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
	err := c.extend(c.b.ctx, lease, true)
	if err == nil && isMoved {
		err = c.resume()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isRenewing = false
	switch {
	case err == nil:
	case isNotHeld(err):
		c.lose()
	case isPassing(err):
		c.renewAt = time.Now().Add(retry)
	default:
		c.renewAt = time.Now().Add(max(lease/renewals, retry))
	}
	c.schedule()
}

// resume asks for the lock that is held, which begins a session. The request alone would acquire a lock that is free by now.
func (c *claim) resume() error {
	isOurs, err := c.take(c.b.ctx, true)
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case c.state != isHeld:
		// It was released meanwhile.
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

// lose ends the contexts of a lock that is lost.
func (c *claim) lose() {
	if c.state != isHeld {
		return
	}
	c.end(isLost, lostError(c.name, "hold"))
	if c.session {
		// The server may still renew it.
		go c.withdraw()
	}
}

// end ends the contexts, and what renews and watches the lock. The cause is nil unless the lock is lost.
func (c *claim) end(next state, cause error) {
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.isWatched {
		c.isWatched = false
		c.b.unwatch(c)
	}
	if next == isReleased && c.kind == reentrant {
		c.b.mu.Lock()
		if c.b.owners[c.queueKey()] == c {
			delete(c.b.owners, c.queueKey())
		}
		c.b.mu.Unlock()
	}
	if next == isReleased {
		c.locks.forget(c)
	}
	c.state = next
	for cancel := range c.ends {
		(*cancel)(cause)
	}
	c.ends = nil
}
