package redislock

import (
	"context"
	"errors"
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
			select {
			case <-changes:
			case <-time.After(lease):
			case <-ctx.Done():
			}
		}
	}
}

// holder returns the token of the holder, and when to ask again if no message comes before: the end of a lease causes none.
func (b *backend) holder(ctx context.Context, name string) (owner string, lease time.Duration, err error) {
	if err := b.connOf(name).track(ctx); err != nil {
		return "", 0, err
	}
	info, err := b.read(ctx, "LOCK.INFO", name)
	if !errors.Is(err, ErrModuleNeeded) {
		lease = time.Duration(info.field("lease-ms").num+1) * time.Millisecond
		if lease <= 0 || info.field("state").text == "free" {
			lease = silence
		}
		return info.field("owner").text, lease, err
	}
	found, err := b.read(ctx, "GET", name)
	if codeOf(err) == "WRONGTYPE" {
		found, err = b.read(ctx, "HKEYS", name)
		if len(found.list) > 0 {
			found.value = found.list[0]
		}
	}
	return found.text, silence / 5, err
}
