package redislock

import (
	"container/list"
	"sync"
)

// maxTogether is how many requests for shares of one lock a process has under way at a time.
const maxTogether = 64

// queues are the local queues of a server: one for each lock, or owner of a re-entrant lock, in the order of arrival. Only the first
// waiter of a process asks the server; shares next to each other ask together.
type queues struct {
	mu    sync.Mutex
	byKey map[string]*queue
}

type queue struct {
	turns    list.List
	underWay int
}

// turn is a place in a local queue.
type turn struct {
	key     string
	isShare bool
	// come is closed when the server may be asked. It is nil if it may at once.
	come    chan struct{}
	hasCome bool
	element *list.Element
}

// join joins a queue, unless as many as limit are in it; 0 is no limit. It returns nil then.
func (q *queues) join(key string, isShare bool, limit int) *turn {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byKey[key]
	if line == nil {
		line = &queue{}
		q.byKey[key] = line
	}
	if limit > 0 && line.turns.Len() >= limit {
		return nil
	}
	one := &turn{key: key, isShare: isShare}
	one.element = line.turns.PushBack(one)
	line.admit()
	if !one.hasCome {
		one.come = make(chan struct{})
	}
	return one
}

// leave leaves the queue, in which the next waiters may have their turn now.
func (q *queues) leave(one *turn) {
	q.mu.Lock()
	defer q.mu.Unlock()
	line := q.byKey[one.key]
	line.turns.Remove(one.element)
	if one.hasCome {
		line.underWay--
	}
	if line.turns.Len() == 0 {
		delete(q.byKey, one.key)
	}
	line.admit()
}

// admit gives those at the head their turn: one, or shares next to each other.
func (line *queue) admit() {
	var before *turn
	for at := line.turns.Front(); at != nil; at = at.Next() {
		one := at.Value.(*turn)
		if !one.hasCome {
			isFirst := before == nil
			if !isFirst && (!before.isShare || !one.isShare || line.underWay >= maxTogether) {
				return
			}
			one.hasCome = true
			line.underWay++
			if one.come != nil {
				close(one.come)
			}
		}
		if !one.isShare {
			return
		}
		before = one
	}
}
