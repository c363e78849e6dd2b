package redislock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

const maxRedirections = 5

// connOf returns the connection to the server of a key.
func (b *backend) connOf(key string) *conn {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.connOfLocked(key)
}

func (b *backend) connOfLocked(key string) *conn {
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

// redirection returns the connection that an error reply names: `MOVED <slot> <address>`, or ASK.
func (b *backend) redirection(text string, from *conn) (next *conn, isAsking bool) {
	words := strings.Fields(text)
	if !b.isCluster.Load() || len(words) < 3 || words[0] != "MOVED" && words[0] != "ASK" {
		return nil, false
	}
	slot, err := strconv.ParseUint(words[1], 10, 14)
	host, port, err2 := net.SplitHostPort(words[2])
	if err != nil || err2 != nil {
		return nil, false
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
	return b.connTo(address), words[0] == "ASK"
}

// answer is the last reply to a command that was sent until there was one.
type answer struct {
	value
	from *conn
	// isRepeated: another copy may have been executed, or will be.
	isRepeated bool
}

// read returns the reply to a command that changes nothing.
func (b *backend) read(ctx context.Context, words ...string) (answer, error) {
	return b.ask(ctx, words, "", 0)
}

// ask sends a command, or the script that stands in for it without the module, to the server that has its key, which redirections name.
// It sends it again for a while if it may succeed later: a command counts once. A server that does not reply is not asked again by one
// who waits, whose patience is that of a retry at most.
func (b *backend) ask(ctx context.Context, words []string, script string, patience time.Duration) (answer, error) {
	return b.askBy(ctx, words, script, patience, func(link *conn, isAsking bool) chan reply {
		return link.send(b.wording(words, script), isAsking)
	})
}

// askBy is ask with a function that sends the command, each time.
func (b *backend) askBy(
	ctx context.Context, words []string, script string, patience time.Duration, send func(link *conn, isAsking bool) chan reply,
) (all answer, err error) {
	isLock, until, isAsking := strings.HasPrefix(words[0], "LOCK."), time.Time{}, false
	for pause, redirections := firstPause, 0; ; {
		hasModule := b.hasModule()
		if isLock && !hasModule && script == "" {
			return all, fmt.Errorf("%w: %s", ErrModuleNeeded, words[0])
		}
		if all.from == nil {
			all.from = b.connOf(words[1])
		}
		r := all.from.await(ctx, send(all.from, isAsking))
		all.value, err = r.value, r.failure()
		switch codeOf(err) {
		case "UNKNOWN":
			b.scriptsUntil.Store(int64(time.Since(b.epoch) + useScripts))
			if isLock && hasModule {
				continue
			}
		case "READONLY":
			// It was a master before: its address may lead elsewhere by now.
			if time.Since(all.from.openedAt) > time.Second {
				all.from.close(err)
			}
		case "MOVED", "ASK":
			next, asking := b.redirection(r.value.text, all.from)
			if redirections++; next != nil && redirections <= maxRedirections {
				all.from, isAsking = next, asking
				continue
			}
		}
		if !isPassing(err) || b.silentFor() == maxLease || errors.Is(err, errSilent) && patience <= ownRetries {
			return all, err
		}
		if until.IsZero() {
			until = time.Now().Add(patience)
		}
		if time.Now().Add(pause).After(until) || !sleep(ctx, pause) {
			return all, err
		}
		all.isRepeated = all.isRepeated || errors.Is(err, errUnanswered)
		all.from, isAsking, pause = nil, false, min(2*pause, lastPause)
	}
}

// wording returns what is sent for a command at present: itself, or the script that stands in for it.
func (b *backend) wording(words []string, script string) []string {
	if script == "" || b.hasModule() {
		return words
	}
	return scriptWords(script, words)
}
