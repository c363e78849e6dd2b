package redislock

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
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

// trackingWords have the server report the changes of what is read. A user without the right to that sees a loss later. NOLOOP is not used:
// with it, a write of this connection ends the tracking of the key without a message.
var trackingWords = []string{"CLIENT", "TRACKING", "ON"}

var (
	errSilent = errors.New("the server does not reply")
	errClosed = errors.New("the connection is closed")
)

// conn is one connection to one server: commands and replies in one order, and messages between them. What is sent before it is open waits
// for that.
//
// A goroutine reads it. While no messages are expected, it rests, and a caller reads its reply itself: to wake a goroutine for that takes
// as long as all the rest of a command.
type conn struct {
	b        *backend
	address  string
	id       string
	openedAt time.Time

	// opened is closed when it is open or has failed.
	opened chan struct{}
	// reader has an item while somebody reads. wake ends the rest of the goroutine that reads otherwise.
	reader, wake chan struct{}
	in           *bufio.Reader

	mu      sync.Mutex
	net     net.Conn
	isOpen  bool
	err     error // It is closed.
	out     []byte
	spare   []byte
	writing bool
	// calls has where the replies go, in the order of the commands; store is its memory.
	calls, store []chan reply
	quiet, sent  int
	isResting    bool
	isTracked    bool
	// mayRest: the context of a caller can end its read.
	mayRest bool
	wokenAt time.Time
	ticks   *time.Timer
	// channel is where messages come that end waits, and subscribed the reply to its subscription.
	channel    string
	subscribed chan reply
}

func newConn(b *backend, address string, delay time.Duration) *conn {
	c := &conn{
		b: b, address: address, id: rand.Text(), openedAt: time.Now(), store: make([]chan reply, 0, 64),
		opened: make(chan struct{}),
		reader: make(chan struct{}, 1), wake: make(chan struct{}, 1),
	}
	c.ticks = time.AfterFunc(tick, c.tick)
	c.reader <- struct{}{}
	go func() {
		sleep(b.ctx, delay)
		err := c.open()
		close(c.opened)
		for err == nil {
			err = c.read(true)
			c.rest()
		}
		c.close(err)
	}()
	return c
}

// open connects, chooses the protocol, the user and the database, and sends what waits for that.
func (c *conn) open() error {
	ctx, cancel := context.WithTimeout(c.b.ctx, silence)
	defer cancel()
	link, err := c.b.Dial(ctx, c.address)
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, func() { _ = link.Close() })()
	hello := []string{"HELLO", "3", "SETNAME", "redis-lock-client"}
	if c.b.Credentials != nil {
		user, password, err := c.b.Credentials(ctx)
		if err != nil {
			return errors.Join(err, link.Close())
		}
		if password != "" {
			hello = append(hello, "AUTH", cmp.Or(user, "default"), password)
		}
	}
	c.in = bufio.NewReaderSize(link, 16<<10)
	answer, err := call(link, c.in, hello...)
	if answer.kind != 0 {
		c.b.heard()
	}
	if answer.field("mode").text == "cluster" {
		c.b.isCluster.Store(true)
	}
	if err == nil && c.b.Database != 0 {
		_, err = call(link, c.in, "SELECT", strconv.Itoa(c.b.Database))
	}
	var refusal error
	if err == nil {
		_, refusal = call(link, c.in, trackingWords...)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if err = cmp.Or(err, c.err); err != nil {
		return errors.Join(err, link.Close())
	}
	c.net, c.isOpen, c.quiet, c.isTracked = link, true, 0, !isPassing(refusal)
	c.mayRest = link.SetReadDeadline(time.Time{}) == nil
	c.flush()
	return nil
}

// track has the server report the changes of what is read from now on, unless it has agreed to: it may have been too busy.
func (c *conn) track(ctx context.Context) error {
	c.mu.Lock()
	isTracked := c.isTracked
	c.mu.Unlock()
	if isTracked {
		return nil
	}
	err := c.await(ctx, c.send(trackingWords, false)).failure()
	if !isPassing(err) && ctx.Err() == nil {
		c.mu.Lock()
		c.isTracked = true
		c.mu.Unlock()
		return nil
	}
	return err
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
	c.flush()
	return call
}

func (c *conn) enqueue(call chan reply, words []string) {
	if c.err != nil {
		call <- reply{err: fmt.Errorf("%w: %w", errNotSent, c.err)}
		return
	}
	if len(c.calls) == 0 {
		c.quiet, c.calls = 0, c.store
	}
	c.calls = append(c.calls, call)
	c.sent++
	c.out = appendCommand(c.out, words)
}

// flush writes what is to be sent, and unlocks meanwhile. Callers write themselves; one who finds another writing leaves it to that one.
func (c *conn) flush() {
	if c.writing {
		return
	}
	for range maxBatches {
		if len(c.out) == 0 || !c.isOpen {
			return
		}
		batch := c.out
		c.out, c.writing = c.spare[:0], true
		c.mu.Unlock()
		_, err := c.net.Write(batch)
		if err != nil {
			c.close(err)
		}
		c.mu.Lock()
		c.spare, c.writing = batch[:0], false
	}
	go func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.flush()
	}()
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
	calls, failure := c.calls, fmt.Errorf("%w: %w", errNotSent, cause)
	wasOpen := c.isOpen
	c.isOpen, c.calls = false, nil
	c.mu.Unlock()
	c.ticks.Stop()
	tell(c.wake, struct{}{})
	if wasOpen {
		failure = fmt.Errorf("%w: %w", errUnanswered, cause)
		_ = c.net.Close()
	}
	c.b.lost(c, wasOpen, cause)
	for _, call := range calls {
		call <- reply{err: failure}
	}
}
