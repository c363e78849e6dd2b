package redislock

// watch watches one key for all its holds in this process: one read after a change shows which of them hold the lock, and makes the server
// report the next change.
//
// A write of this process is reported as any other, so each EXTEND is followed by a read: one that comes too late to see what somebody
// else has changed in between finds it in the key.
type watch struct {
	holds  map[*claim]struct{}
	events chan string
	stop   func()
}

// watch watches the key of a hold.
func (b *backend) watch(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watches[c.name]
	if w == nil {
		w = &watch{holds: map[*claim]struct{}{}}
		w.events, w.stop = b.listenLocked(c.name)
		b.watches[c.name] = w
		go b.readChanges(c.name, w)
	}
	w.holds[c] = struct{}{}
	tell(w.events, "new")
}

// unwatch forgets a hold, and the watch if nobody needs it.
func (b *backend) unwatch(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	w := b.watches[c.name]
	delete(w.holds, c)
	if len(w.holds) == 0 {
		delete(b.watches, c.name)
		tell(w.events, "end")
	}
}

// readChanges reads a key as often as it changes, as long as a hold needs it.
func (b *backend) readChanges(key string, w *watch) {
	defer w.stop()
	for range w.events {
		byKind := map[kind][]*claim{}
		b.mu.Lock()
		isOver := len(w.holds) == 0
		for c := range w.holds {
			byKind[c.kind] = append(byKind[c.kind], c)
		}
		b.mu.Unlock()
		if isOver {
			return
		}
		link := b.connOf(key)
		_ = link.isReady(b.ctx)
		link.track()
		var err error
		for kind, holds := range byKind {
			for _, c := range holds {
				c.checkSession()
			}
			if err == nil {
				err = b.checkHolds(key, kind, holds)
			}
		}
		// Another error is one of rights: a loss is seen at the next renewal, or the lease ends.
		isPassing := isPassing(err)
		if isPassing || b.connOf(key) != link {
			// The slot may have moved to a node that does not report changes yet.
			tell(w.events, "again")
		}
		if isPassing {
			sleep(b.ctx, retry)
		}
	}
}

// checkHolds asks the server which holds of one kind hold the lock. Those that were added since are not meant by the reply.
func (b *backend) checkHolds(key string, kind kind, holds []*claim) error {
	words := []string{"GET", key}
	switch kind {
	case reentrant:
		// A re-entrant lock has one holder: more are lost ones.
		for len(holds) > 1 {
			if err := b.checkHolds(key, kind, holds[:1]); err != nil {
				return err
			}
			holds = holds[1:]
		}
		words = []string{"HGET", key, holds[0].token}
	case shared:
		words = []string{"ZMSCORE", key}
		for _, c := range holds {
			words = append(words, c.token)
		}
	}
	answer, _, err := b.exchange(b.ctx, key, words)
	if err != nil && !isNotHeld(err) {
		return err
	}
	for n, c := range holds {
		isHolding := err == nil && !answer.isNull()
		switch {
		case !isHolding:
		case kind == mutex:
			isHolding = answer.text == c.token
		case kind == shared:
			isHolding = n < len(answer.list) && !answer.list[n].isNull()
		}
		if !isHolding {
			c.mu.Lock()
			c.lose()
			c.mu.Unlock()
		}
	}
	return nil
}
