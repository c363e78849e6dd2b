package redislock

import (
	"context"
	"iter"
	"time"
)

// Observe yields the label of the holder of a lock, empty for a holder without one or no holder, now and at each change of the holder. It
// ends with the context; an outage is an error that is yielded, and the observation goes on.
//
//	for leader, err := range locks.Observe(ctx, "leader") { ... }
func (l *Locks) Observe(ctx context.Context, name string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) {
		changes, stop := l.b.listen(name)
		defer stop()
		last, isFirst := "", true
		for ctx.Err() == nil {
			owner, lease, err := l.b.holder(ctx, name)
			switch {
			case ctx.Err() != nil:
				return
			case err != nil:
				if !yield("", public(name, "observe", err)) {
					return
				}
				lease = retry
			case isFirst || owner != last:
				if !yield(labelOf(owner), nil) {
					return
				}
				last, isFirst = owner, false
			}
			timer := time.NewTimer(lease)
			select {
			case <-changes:
			case <-timer.C:
			case <-ctx.Done():
			}
			timer.Stop()
		}
	}
}

// holder returns the token of the holder, and when to ask again if no message comes before: the end of a lease causes none.
func (b *backend) holder(ctx context.Context, name string) (owner string, lease time.Duration, err error) {
	link := b.connOf(name)
	if err := link.isReady(ctx); err != nil {
		return "", 0, err
	}
	link.track()
	if b.hasModule() {
		reply, _, err := b.exchange(ctx, name, []string{"LOCK.INFO", name})
		if codeOf(err) != "UNKNOWN" {
			lease = time.Duration(field(reply, "lease-ms").num+1) * time.Millisecond
			if lease <= 0 || field(reply, "state").text == "free" {
				lease = silence
			}
			return field(reply, "owner").text, lease, err
		}
	}
	reply, _, err := b.exchange(ctx, name, []string{"GET", name})
	if codeOf(err) == "WRONGTYPE" {
		reply, _, err = b.exchange(ctx, name, []string{"HKEYS", name})
		if err == nil && len(reply.list) > 0 {
			reply = reply.list[0]
		}
	}
	return reply.text, silence / 5, err
}

// field returns a field of a reply that is a map.
func field(reply value, name string) value {
	for n := 0; n+1 < len(reply.list); n += 2 {
		if reply.list[n].text == name {
			return reply.list[n+1]
		}
	}
	return value{kind: '_'}
}
