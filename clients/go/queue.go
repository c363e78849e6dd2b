package redislock

import (
	"slices"
	"sync"
)

// maxTogether is how many requests for shares of one lock a process has under way at a time.
const maxTogether = 64

// queues are the local queues of a server: one for each lock, or owner of a re-entrant lock, in the order of arrival. Only the first
// waiter of a process asks the server; shares next to each other ask together.
type queues struct {
	mu    sync.Mutex
	byKey map[string][]*turn
}

// turn is an entry of a local queue.
type turn struct {
	key     string
	isShare bool
	hasCome bool
	// come is closed when the server may be asked. It is nil if it may at once.
	come chan struct{}
}

// join joins a queue, unless as many as limit are in it; 0 is no limit. It returns nil then.
func (q *queues) join(key string, isShare bool, limit int) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	if limit > 0 && len(q.byKey[key]) >= limit {
		return nil
	}
	one := &turn{key: key, isShare: isShare}
	q.byKey[key] = append(q.byKey[key], one)
	q.admit(key)
	if !one.hasCome {
		one.come = make(chan struct{})
	}
	return one
}

// leave leaves the queue, in which the next waiters may have their turn now.
func (q *queues) leave(one *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	at := slices.Index(q.byKey[one.key], one)
	if q.byKey[one.key] = slices.Delete(q.byKey[one.key], at, at+1); len(q.byKey[one.key]) == 0 {
		delete(q.byKey, one.key)
	}
	q.admit(one.key)
}

// admit gives those at the head their turn: one, or shares next to each other.
func (q *queues) admit(key string) {
	for n, one := range q.byKey[key] {
		if n > 0 && (n == maxTogether || !one.isShare || !q.byKey[key][0].isShare) {
			return
		}
		if !one.hasCome && one.come != nil {
			close(one.come)
		}
		one.hasCome = true
	}
}
