package redislock

import (
	"maps"
	"slices"
	"strings"
)

// message passes on a message of the server.
func (c *conn) message(list []value) {
	switch last := list[len(list)-1]; list[0].text {
	case "smessage":
		c.b.message(last.text)
	case "invalidate":
		keys := []string{}
		for _, key := range last.list {
			keys = append(keys, key.text)
		}
		c.b.hear("changed", keys...)
	case "sunsubscribe":
		c.forgetChannel()
		c.b.hear("lost")
	}
}

// channelFor returns the channel for messages that end waits, empty if there can be none for a key. The subscription is sent with what the
// caller sends next, so its reply is not awaited.
func (b *backend) channelFor(key string) string {
	if !b.hasModule() {
		return ""
	}
	c := b.connOf(key)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.subscribed == nil {
		// In a cluster it is in the slot of the key.
		if c.channel = channelOf(c.id, key, c.b.isCluster.Load()); c.channel != "" {
			c.subscribed = make(chan reply, 1)
			c.enqueue(c.subscribed, []string{"SSUBSCRIBE", c.channel})
		}
	}
	return c.channel
}

// forgetChannel forgets the channel, which does not work: in a cluster its slot may have moved. A user without the right to it polls.
func (c *conn) forgetChannel() {
	c.mu.Lock()
	defer c.mu.Unlock()
	select {
	case r := <-c.subscribed:
		if codeOf(r.failure()) == "NOPERM" {
			c.channel = ""
			c.b.warn("waits for locks poll, because the user has no right to the channels redis-lock:*")
			return
		}
	default:
	}
	c.subscribed = nil
}

// listen returns where the events of a token or a key go, until it is stopped.
func (b *backend) listen(topic string) (events chan string, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	events = make(chan string, 1)
	if b.topics[topic] == nil {
		b.topics[topic] = map[chan string]struct{}{}
	}
	b.topics[topic][events] = struct{}{}
	return events, func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		if delete(b.topics[topic], events); len(b.topics[topic]) == 0 {
			delete(b.topics, topic)
		}
	}
}

// hear sends an event to those who listen to one of the topics. Without topics messages may be lost: all waits ask again, and all watched
// locks are checked.
func (b *backend) hear(event string, topics ...string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if len(topics) == 0 {
		topics = slices.AppendSeq(slices.Collect(maps.Keys(b.topics)), maps.Keys(b.watches))
	}
	for _, topic := range topics {
		b.review(topic)
		for events := range b.topics[topic] {
			tell(events, event)
		}
	}
}

// tell sends an event. While one is not read yet, another one has the same effect: to ask.
func tell[T any](events chan T, event T) {
	select {
	case events <- event:
	default:
	}
}

// message reads a message: `<event> <lease end> <db> <token> <key>`.
func (b *backend) message(text string) {
	if words := strings.SplitN(text, " ", 5); len(words) == 5 {
		b.hear(words[0], words[3])
	}
}
