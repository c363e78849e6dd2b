package redislock

// watch watches one key for all its holds in this process: one read after a change shows which of them hold the lock, and makes the server
// report the next change.
//
// A write of this process is reported as any other, so each EXTEND is followed by a read: one that comes too late to see what somebody
// else has changed in between finds it in the key.
type watch struct {
	holds map[*claim]struct{}
	// isDue: the key may have changed. isReading: a goroutine reads it until it has not.
	isDue, isReading bool
}

// watch watches the key of a hold.
func (b *backend) watch(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.watches[c.name] == nil {
		b.watches[c.name] = &watch{holds: map[*claim]struct{}{}}
	}
	b.watches[c.name].holds[c] = struct{}{}
	b.review(c.name)
}

// unwatch forgets a hold, and the watch if it has no other.
func (b *backend) unwatch(c *claim) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if w := b.watches[c.name]; w != nil {
		if delete(w.holds, c); len(w.holds) == 0 {
			delete(b.watches, c.name)
		}
	}
}

// review has a key read if it is watched.
func (b *backend) review(key string) {
	w := b.watches[key]
	if w == nil {
		return
	}
	w.isDue = true
	if !w.isReading {
		w.isReading = true
		go b.readChanges(key, w)
	}
}

// readChanges reads a key as often as it changes, as long as a hold needs it.
func (b *backend) readChanges(key string, w *watch) {
	for {
		// A re-entrant lock has one holder: more are lost ones.
		groups := map[string][]*claim{}
		b.mu.Lock()
		if len(w.holds) == 0 || !w.isDue {
			w.isReading = false
			b.mu.Unlock()
			return
		}
		w.isDue = false
		for c := range w.holds {
			group := string(c.kind)
			if c.kind == reentrant {
				group = c.token
			}
			groups[group] = append(groups[group], c)
		}
		b.mu.Unlock()
		for _, holds := range groups {
			for _, c := range holds {
				c.mu.Lock()
				c.noteCut()
				c.mu.Unlock()
			}
		}
		link := b.connOf(key)
		err := link.track(b.ctx)
		for _, holds := range groups {
			if err == nil {
				err = b.checkHolds(key, holds)
			}
		}
		// Another error is one of rights: a loss is seen at the next renewal, or the lease ends.
		isPassing := isPassing(err)
		if isPassing {
			sleep(b.ctx, retry)
		}
		// The slot may have moved to a node that does not report changes yet.
		b.mu.Lock()
		w.isDue = w.isDue || isPassing || b.ctx.Err() == nil && b.connOfLocked(key) != link
		b.mu.Unlock()
	}
}

// checkHolds asks the server which holds of one kind hold the lock. Those that were added since are not meant by the reply.
func (b *backend) checkHolds(key string, holds []*claim) error {
	words := []string{"GET", key}
	switch holds[0].kind {
	case reentrant:
		words = []string{"HGET", key, holds[0].token}
	case shared:
		words = []string{"ZMSCORE", key}
		for _, c := range holds {
			words = append(words, c.token)
		}
	}
	answer, err := b.read(b.ctx, words...)
	if err != nil && !isNotHeld(err) {
		return err
	}
	for n, c := range holds {
		isHolding := err == nil && !answer.isNull()
		switch {
		case !isHolding || c.kind == reentrant:
		case c.kind == mutex:
			isHolding = answer.text == c.token
		default:
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
