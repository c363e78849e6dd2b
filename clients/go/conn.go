package redislock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"time"
)

const (
	// Time is counted in ticks: after a stall of this process there is one, and replies are read before the next.
	tick = 500 * time.Millisecond
	// silenceTicks after the last reply a server is taken for lost, one tick more than silence lasts at least.
	silenceTicks = int(silence/tick) - 1
	// idleTicks is how long a connection stays open that no lock uses: a minute.
	idleTicks = 120
	// maxBatches is how many batches a caller writes for others.
	maxBatches = 4
)

var (
	errSilent = errors.New("the server does not reply")
	errClosed = errors.New("the connection is closed")
)

// reply is a reply, or the error that there is none.
type reply struct {
	value value
	err   error
}

// failure returns an error also for an error reply.
func (r reply) failure() error {
	if r.err == nil && r.value.kind == '-' {
		return serverError(r.value.text)
	}
	return r.err
}

// conn is one connection to one server: commands and replies in one order, and messages between them.
type conn struct {
	b        *backend
	address  string
	id       string
	openedAt time.Time
	// ready is closed when the connection is open or has failed.
	ready chan struct{}

	mu      sync.Mutex
	net     net.Conn
	isOpen  bool
	err     error // It is closed.
	out     []byte
	spare   []byte
	writing bool
	// calls has where the replies go, in the order of the commands; store is its memory.
	calls, store []chan reply
	quiet        int
	ticks        *time.Timer
	// channel is where messages come that end waits, and subscribed the reply to its subscription.
	channel    string
	subscribed chan reply
	isTracked  bool
}

func newConn(b *backend, address string, delay time.Duration) *conn {
	c := &conn{
		b: b, address: address, id: randomText(), openedAt: time.Now(),
		ready: make(chan struct{}), store: make([]chan reply, 0, 64),
	}
	c.ticks = time.AfterFunc(tick, c.tick)
	go func() {
		defer close(c.ready)
		time.Sleep(delay)
		if err := c.open(); err != nil {
			c.close(err)
		}
	}()
	return c
}

// open connects, and chooses the protocol, the user and the database.
func (c *conn) open() error {
	ctx, cancel := context.WithTimeout(c.b.ctx, silence)
	defer cancel()
	link, err := c.b.Dial(ctx, c.address)
	if err != nil {
		return err
	}
	c.mu.Lock()
	c.net = link
	err = c.err
	c.mu.Unlock()
	if err != nil {
		_ = link.Close()
		return err
	}
	go c.read()
	hello := []string{"HELLO", "3", "SETNAME", "redis-lock-client"}
	if c.b.Credentials != nil {
		user, password, err := c.b.Credentials(ctx)
		if err != nil {
			return err
		}
		if password != "" {
			hello = append(hello, "AUTH", cmp.Or(user, "default"), password)
		}
	}
	for _, words := range [][]string{hello, {"SELECT", strconv.Itoa(c.b.Database)}} {
		if words[0] == "SELECT" && c.b.Database == 0 {
			break
		}
		r := c.await(ctx, c.send(words, false))
		if err := r.failure(); err != nil {
			return err
		}
		if field(r.value, "mode").text == "cluster" {
			c.b.isCluster.Store(true)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.isOpen = c.err == nil
	return c.err
}

// isReady waits until the connection is open or has failed.
func (c *conn) isReady(ctx context.Context) error {
	if c.isReadyNow() {
		return nil
	}
	select {
	case <-c.ready:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (c *conn) isReadyNow() bool {
	select {
	case <-c.ready:
		return true
	default:
		return false
	}
}

// do sends a command when the connection is open, and returns its reply. It is sent even if the context has ended, which leaves the
// reply to nobody.
func (c *conn) do(ctx context.Context, words []string, isAsking bool) reply {
	if err := c.isReady(ctx); err != nil {
		return reply{err: err}
	}
	return c.await(ctx, c.send(words, isAsking))
}

func (c *conn) await(ctx context.Context, call chan reply) reply {
	select {
	case r := <-call:
		return r
	case <-ctx.Done():
		return reply{err: ctx.Err()}
	}
}

// send sends a command.
func (c *conn) send(words []string, isAsking bool) chan reply {
	call := make(chan reply, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	if isAsking {
		c.enqueue(make(chan reply, 1), []string{"ASKING"})
	}
	c.enqueue(call, words)
	if !c.writing {
		c.writing = true
		c.flush()
	}
	return call
}

func (c *conn) enqueue(call chan reply, words []string) {
	if c.err != nil || c.net == nil {
		call <- reply{err: &disconnected{cause: cmp.Or(c.err, errClosed)}}
		return
	}
	if len(c.calls) == 0 {
		c.quiet, c.calls = 0, c.store
	}
	c.calls = append(c.calls, call)
	c.out = appendCommand(c.out, words)
}

// flush writes what is to be sent, and unlocks meanwhile. Callers write themselves; one who finds another writing leaves it to that one.
func (c *conn) flush() {
	for range maxBatches {
		if len(c.out) == 0 || c.err != nil {
			c.writing = false
			return
		}
		batch := c.out
		c.out = c.spare[:0]
		c.mu.Unlock()
		_, err := c.net.Write(batch)
		if err != nil {
			c.close(err)
		}
		c.mu.Lock()
		c.spare = batch[:0]
	}
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flush()
	}()
}

// read passes on what the server sends, until the connection is lost.
func (c *conn) read() {
	in := bufio.NewReaderSize(c.net, 16<<10)
	for {
		next, err := readValue(in)
		isMessage := next.kind == '>' && len(next.list) > 0 && next.list[0].text != "ssubscribe"
		var call chan reply
		c.mu.Lock()
		c.quiet = 0
		if err == nil && !isMessage {
			// The reply to SSUBSCRIBE is a message.
			if len(c.calls) == 0 {
				err = errMalformed
			} else {
				call, c.calls = c.calls[0], c.calls[1:]
			}
		}
		c.mu.Unlock()
		switch {
		case err != nil:
			c.close(err)
			return
		case isMessage:
			c.message(next.list)
		default:
			c.b.heardAt.Store(max(1, int64(time.Since(c.b.epoch))))
			call <- reply{value: next}
		}
	}
}

func (c *conn) message(list []value) {
	switch last := list[len(list)-1]; list[0].text {
	case "smessage":
		c.b.message(last.text)
	case "invalidate":
		if last.isNull() {
			c.b.hearAll("changed")
		}
		for _, key := range last.list {
			c.b.hear(key.text, "changed")
		}
	case "sunsubscribe":
		c.forgetChannel()
		c.b.hearAll("lost")
	}
}

// subscribe returns the channel for messages that end waits, empty if there can be none for a key. The subscription is sent with what the
// caller sends next, so its reply is not awaited.
func (c *conn) subscribe(key string) string {
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

// track makes the server report the changes of what is read from now on. A user without the right to it sees a loss later.
func (c *conn) track() {
	c.mu.Lock()
	wasTracked := c.isTracked
	c.isTracked = true
	c.mu.Unlock()
	if !wasTracked {
		// NOLOOP is not used: with it, a write of this connection ends the tracking of the key without a message.
		c.send([]string{"CLIENT", "TRACKING", "ON"}, false)
	}
}

func (c *conn) tick() {
	c.mu.Lock()
	c.quiet++
	isAwaited := len(c.calls) > 0 || !c.isOpen
	quiet := c.quiet
	c.mu.Unlock()
	switch {
	case isAwaited && quiet > silenceTicks:
		c.close(errSilent)
	case !isAwaited && quiet > idleTicks && c.b.isIdle():
		c.close(errClosed)
	default:
		c.ticks.Reset(tick)
	}
}

// close ends all calls.
func (c *conn) close(cause error) {
	c.mu.Lock()
	if c.err != nil {
		c.mu.Unlock()
		return
	}
	c.err = cause
	wasOpen, link, calls := c.isOpen, c.net, c.calls
	c.isOpen, c.calls = false, nil
	c.mu.Unlock()
	c.ticks.Stop()
	if link != nil {
		_ = link.Close()
	}
	c.b.lost(c, wasOpen, cause)
	for _, call := range calls {
		call <- reply{err: &disconnected{cause: cause, wasSent: wasOpen}}
	}
}
