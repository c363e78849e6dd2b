package redislock

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
)

const maxRedirections = 5

// backend is what all Locks of this process on one server, or in one cluster, share.
type backend struct {
	Server
	queues queues
	logger atomic.Pointer[slog.Logger]
	// ctx ends when the last Locks are closed.
	ctx    context.Context
	cancel context.CancelFunc
	// heardAt is when the server has replied last, and scriptsUntil until when scripts are used without the module: times since epoch.
	epoch                 time.Time
	heardAt, scriptsUntil atomic.Int64
	hasWarned             atomic.Bool
	// isCluster tells that other nodes have other keys.
	isCluster atomic.Bool

	mu sync.Mutex
	// users is how many Locks are open.
	users int
	// conns has the connections by address; the one that the client names is "". slots has the addresses that redirections have named.
	conns map[string]*conn
	slots map[uint16]string
	// topics has where events go, by the token that waits or the key that changes.
	topics  map[string]map[chan string]struct{}
	watches map[string]*watch
	// owners has the holds of re-entrant locks by name and owner.
	owners map[string]*claim
	// unsent is how many releases of a lock are in the background.
	unsent map[string]int
	// lostAt is when a connection was lost, failedAt when one could not be opened.
	lostAt, failedAt time.Time
}

var (
	backendsMu sync.Mutex
	backends   = map[string]*backend{}
)

// openBackend returns the one backend of a server in this process.
func openBackend(server Server) *backend {
	backendsMu.Lock()
	defer backendsMu.Unlock()
	b := backends[server.ID]
	if b == nil {
		b = &backend{
			Server: server, epoch: time.Now(), queues: queues{byKey: map[string]*queue{}}, conns: map[string]*conn{}, slots: map[uint16]string{},
			topics: map[string]map[chan string]struct{}{}, watches: map[string]*watch{}, owners: map[string]*claim{}, unsent: map[string]int{},
		}
		b.ctx, b.cancel = context.WithCancel(context.Background())
		backends[server.ID] = b
	}
	b.users++
	return b
}

// leave closes the connections when the last Locks are closed.
func (b *backend) leave() {
	backendsMu.Lock()
	defer backendsMu.Unlock()
	if b.users--; b.users > 0 {
		return
	}
	delete(backends, b.ID)
	b.cancel()
	b.mu.Lock()
	conns := slices.Collect(maps.Values(b.conns))
	b.mu.Unlock()
	for _, c := range conns {
		c.close(errClosed)
	}
}

func (b *backend) log() *slog.Logger { return b.logger.Load() }

// warn warns once.
func (b *backend) warn(text string) {
	if !b.hasWarned.Swap(true) {
		b.log().Warn(text)
	}
}

func (b *backend) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.topics) == 0
}

func (b *backend) hasModule() bool { return int64(time.Since(b.epoch)) >= b.scriptsUntil.Load() }

// silentFor is the time since the server has replied; ok is false if it never has.
func (b *backend) silentFor() (since time.Duration, ok bool) {
	at := b.heardAt.Load()
	return time.Since(b.epoch) - time.Duration(at), at != 0
}

// connOf returns the connection to the server of a key.
func (b *backend) connOf(key string) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.isCluster.Load() {
		return b.connTo("")
	}
	return b.connTo(b.slots[slotOf(key)])
}

func (b *backend) connTo(address string) *conn {
	c := b.conns[address]
	if c == nil {
		c = newConn(b, address, time.Until(b.failedAt.Add(retry)))
		b.conns[address] = c
	}
	return c
}

// command is what is sent for a lock, and the script that stands in for it without the module, if there is one.
type command struct {
	key    string
	words  []string
	script string
	// isOnce leaves it to the caller to send it again.
	isOnce bool
}

// exchange returns the reply of the server that has the key, which redirections name, and the connection that it came by.
func (b *backend) exchange(ctx context.Context, key string, words []string) (value, *conn, error) {
	c, isAsking := b.connOf(key), false
	for redirections := 0; ; redirections++ {
		r := c.do(ctx, words, isAsking)
		if r.err != nil || r.value.kind != '-' {
			return r.value, c, r.err
		}
		failure := serverError(r.value.text)
		switch failure.code() {
		case "UNKNOWN":
			b.scriptsUntil.Store(int64(time.Since(b.epoch) + useScripts))
		case "READONLY":
			// It was a master before: its address may lead elsewhere by now.
			if time.Since(c.openedAt) > time.Second {
				c.close(failure)
			}
		}
		next, asking, isMoved := b.redirection(failure, c)
		if !isMoved || redirections == maxRedirections {
			return value{}, c, failure
		}
		c, isAsking = next, asking
	}
}

// redirection returns the connection that an error reply names.
func (b *backend) redirection(failure serverError, from *conn) (next *conn, isAsking, ok bool) {
	words := strings.Fields(string(failure))
	if !b.isCluster.Load() || len(words) < 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return nil, false, false
	}
	slot, err := strconv.ParseUint(words[1], 10, 14)
	host, port, err2 := net.SplitHostPort(words[2])
	if err != nil || err2 != nil {
		return nil, false, false
	}
	if host == "" {
		// The same host on another port.
		host, _, _ = net.SplitHostPort(from.net.RemoteAddr().String())
	}
	address := net.JoinHostPort(host, port)
	b.mu.Lock()
	defer b.mu.Unlock()
	if words[0] == "MOVED" {
		b.slots[uint16(slot)] = address
	}
	return b.connTo(address), words[0] == "ASK", true
}

// ask sends a command, or its script, and again if the server could not be reached: a command counts once. It reports whether it was sent
// again.
func (b *backend) ask(ctx context.Context, cmd *command) (answer value, c *conn, isRepeated bool, err error) {
	startedAt, until := time.Now(), time.Time{}
	for pause := firstPause; ; {
		words, isScript := cmd.words, !b.hasModule()
		if isScript {
			if words = scriptWords(cmd.script, words); words == nil {
				return value{}, nil, isRepeated, fmt.Errorf("%w: %s", ErrModuleNeeded, feature(cmd.words))
			}
		}
		answer, c, err = b.exchange(ctx, cmd.key, words)
		if codeOf(err) == "UNKNOWN" && !isScript {
			continue
		}
		if until.IsZero() && err != nil {
			until = time.Now().Add(min(ownRetries, time.Until(startedAt.Add(silence))))
		}
		_, wasHeard := b.silentFor()
		if cmd.isOnce || !isPassing(err) || !wasHeard || time.Now().Add(pause).After(until) || !sleep(ctx, pause) {
			return answer, c, isRepeated, err
		}
		isRepeated = isRepeated || wasSent(err)
		pause = min(2*pause, lastPause)
	}
}

func feature(words []string) string {
	for _, word := range words {
		if word == "SESSION" {
			return "a session"
		}
	}
	return words[0]
}

// confirm returns an error unless the server has replied lately, or does so now.
func (b *backend) confirm(key string) error {
	b.mu.Lock()
	lostAt := b.lostAt
	b.mu.Unlock()
	if since, ok := b.silentFor(); ok && since < probeAfter && time.Now().Add(-since).After(lostAt) {
		return nil
	}
	ctx, cancel := context.WithTimeout(b.ctx, late)
	defer cancel()
	_, _, err := b.exchange(ctx, key, []string{"GET", key})
	if codeOf(err) != "" {
		// An error reply is a reply, too.
		return nil
	}
	return err
}

// listen returns where the events of a token or a key go, until it is stopped.
func (b *backend) listen(topic string) (events chan string, stop func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.listenLocked(topic)
}

func (b *backend) listenLocked(topic string) (events chan string, stop func()) {
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

// hear sends an event to those who listen.
func (b *backend) hear(topic, event string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for events := range b.topics[topic] {
		tell(events, event)
	}
}

// hearAll makes all waits ask again, and all watched locks be checked: messages may be lost.
func (b *backend) hearAll(event string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, topic := range b.topics {
		for events := range topic {
			tell(events, event)
		}
	}
}

// tell sends an event. While one is not read yet, another one has the same effect: to ask.
func tell(events chan string, event string) {
	select {
	case events <- event:
	default:
	}
}

// message reads a message: `<event> <lease end> <db> <token> <key>`.
func (b *backend) message(text string) {
	if words := strings.SplitN(text, " ", 5); len(words) == 5 {
		b.hear(words[3], words[0])
	}
}

// lost notes that a connection is lost: another node may have its slots.
func (b *backend) lost(c *conn, wasOpen bool, cause error) {
	b.mu.Lock()
	if b.conns[c.address] == c {
		delete(b.conns, c.address)
	}
	for slot, address := range b.slots {
		if address == c.address {
			delete(b.slots, slot)
		}
	}
	b.lostAt = time.Now()
	if !wasOpen && cause != errClosed {
		b.failedAt = b.lostAt
	}
	b.mu.Unlock()
	// If none was open, two waits without a server would wake each other.
	if wasOpen && cause != errClosed {
		b.hearAll("lost")
	}
}

// sleep pauses. It returns false if the context has ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
