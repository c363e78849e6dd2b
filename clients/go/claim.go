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
//	held   a third of the lease has passed, renewed or a session; or the grant    EXTEND; its reply sets the end
//	       was late
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

	// order is that of the commands: it is held while one is sent, and taken before mu.
	order sync.Mutex

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
	// confirmed is the latest lease for which there is a reply, while lease is the latest one that was sent, and changes how many there were.
	confirmed time.Duration
	changes   int
	// graceSent is the grace period that the server has for the session, or the shorter one of two.
	graceSent time.Duration
	// endsAt is zero while a session is open. If the EXTEND after a late grant fails, certainEnd counts.
	endsAt, certainEnd time.Time
	// renewAt is when EXTEND is due, and zero if none is.
	renewAt    time.Time
	isRenewing bool
	sessionOn  *conn
	timer      *time.Timer
	dueAt      time.Time
	// ended ends with the hold, whose key is watched once it is there.
	ended context.Context
	end   context.CancelCauseFunc
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
	outer.count++
	outer.mu.Unlock()
	var err error
	switch {
	case now == isReleased:
		return nil, nil
	case now == isLost:
		err = ErrLost
	case isShort:
		err = outer.asHolder(func() error { return outer.extend(ctx, c.lease, ownRetries) })
	}
	if err == nil {
		return outer, nil
	}
	outer.mu.Lock()
	outer.count--
	outer.mu.Unlock()
	return nil, err
}

// begin notes that the lock is held. A grant that comes late has lost a part of its lease, which EXTEND gives back.
func (c *claim) begin() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	c.state, c.count, c.confirmed = isHeld, 1, c.lease
	c.endsAt, c.renewAt = c.sentAt.Add(c.lease), c.nextRenewal(c.sentAt, c.lease)
	if !c.session && now.Sub(c.sentAt) > c.lease/latePart {
		c.certainEnd, c.endsAt, c.renewAt = c.endsAt, now.Add(c.lease), now
	}
	if c.kind == reentrant {
		c.b.mu.Lock()
		c.b.owners[c.queueKey()] = c
		c.b.mu.Unlock()
	}
	if c.session {
		c.sessionOn, c.endsAt = c.link, time.Time{}
		c.watch()
	}
	c.schedule()
}

// schedule sets the timer for what comes next: the renewal or the end. A lock that is neither watched nor renewed has none.
func (c *claim) schedule() {
	if c.state != isHeld || c.ended == nil && c.renewAt.IsZero() {
		return
	}
	at := c.endsAt
	if !c.isRenewing && !c.renewAt.IsZero() && (at.IsZero() || c.renewAt.Before(at)) {
		at = c.renewAt
	}
	switch c.dueAt = at; {
	case at.IsZero():
	case c.timer == nil:
		c.timer = time.AfterFunc(time.Until(at), c.due)
	default:
		c.timer.Reset(time.Until(at))
	}
}

func (c *claim) due() {
	c.mu.Lock()
	if time.Since(c.dueAt) > late/10 {
		// This process has stalled: the replies that have come in between are read first.
		c.mu.Unlock()
		time.Sleep(late / 100)
		c.mu.Lock()
	}
	now := time.Now()
	isDue := !c.renewAt.IsZero() && !now.Before(c.renewAt)
	if !c.endsAt.IsZero() && !now.Before(c.endsAt) {
		c.lose()
	} else if !isDue {
		c.schedule()
	}
	c.mu.Unlock()
	if isDue {
		c.renewNow()
	}
}

// asHolder runs a command of the holder. The lock is lost if the server says so.
func (c *claim) asHolder(run func() error) error {
	c.mu.Lock()
	isOurs := c.state == isHeld
	c.mu.Unlock()
	if !isOurs {
		return ErrLost
	}
	err := run()
	if isNotHeld(err) {
		c.mu.Lock()
		c.lose()
		c.mu.Unlock()
		err = ErrLost
	}
	return err
}

// lose ends the contexts of a lock that is lost.
func (c *claim) lose() {
	if c.state != isHeld {
		return
	}
	c.finish(isLost)
	if c.session {
		// The server may still renew it.
		go c.withdraw()
	}
}

// finish ends the contexts, and what renews and watches the lock.
func (c *claim) finish(next state) {
	c.state = next
	if c.timer != nil {
		c.timer.Stop()
	}
	if c.ended != nil {
		c.b.unwatch(c)
		c.end(c.cause())
	}
	if next == isLost {
		return
	}
	c.locks.forget(c)
	c.b.mu.Lock()
	if c.kind == reentrant && c.b.owners[c.queueKey()] == c {
		delete(c.b.owners, c.queueKey())
	}
	c.b.mu.Unlock()
}

// watch returns a context that ends with the hold. The server reports the changes of the key until then.
func (c *claim) watch() context.Context {
	if c.ended == nil {
		c.ended, c.end = context.WithCancelCause(context.Background())
		if c.state == isHeld {
			c.b.watch(c)
			c.schedule()
		} else {
			c.end(c.cause())
		}
	}
	return c.ended
}

// cause is why the contexts end.
func (c *claim) cause() error {
	if c.state == isLost {
		return lostError(c.name, "hold")
	}
	return context.Canceled
}

func (c *claim) extendWords(lease time.Duration) []string {
	return []string{"LOCK.EXTEND", c.name, c.token, "PX", millis(lease)}
}

func (c *claim) fenceWords(inCluster bool) ([]string, error) {
	counter, err := counterOf(c.name, inCluster)
	return []string{"LOCK.FENCE", c.name, c.token, counter}, err
}
