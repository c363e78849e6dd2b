package redislock

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Server says how to open one connection. The packages goredis, rueidis and valkeygo make it from a client.
type Server struct {
	// Dial opens a connection to a node of a cluster, or to the server itself if the address is empty.
	Dial func(ctx context.Context, address string) (net.Conn, error)
	// Credentials returns the user and the password, for each connection. It may be nil.
	Credentials func(ctx context.Context) (user, password string, err error)
	Database    int
	// ID is the same for all that may share a connection.
	ID string
}

// Locks are locks on one server, or in one cluster. They are safe for concurrent use, and cheap: all of a process on one server share
// one connection, which is opened when it is needed.
type Locks struct {
	b *backend

	mu       sync.Mutex
	held     map[*claim]struct{}
	isClosed bool
}

// New returns the locks of a server. Nothing is sent yet.
func New(server Server) *Locks {
	l := &Locks{b: openBackend(server), held: map[*claim]struct{}{}}
	l.b.logger.CompareAndSwap(nil, slog.Default())
	return l
}

// Open returns the locks of a server by its address: redis://user:password@host:6379/0, or rediss:// with TLS. Nothing is sent yet.
func Open(address string) (*Locks, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, fmt.Errorf("redislock: %w: an address such as redis://localhost:6379/0 is needed", ErrArgument)
	}
	port := u.Port()
	if port == "" {
		port = "6379"
	}
	host := net.JoinHostPort(u.Hostname(), port)
	server := Server{ID: address, Dial: func(ctx context.Context, address string) (net.Conn, error) {
		if address == "" {
			address = host
		}
		if u.Scheme == "rediss" {
			return (&tls.Dialer{}).DialContext(ctx, "tcp", address)
		}
		return (&net.Dialer{}).DialContext(ctx, "tcp", address)
	}}
	if path := strings.Trim(u.Path, "/"); path != "" {
		if server.Database, err = strconv.Atoi(path); err != nil {
			return nil, fmt.Errorf("redislock: %w: the database must be a number", ErrArgument)
		}
	}
	if u.User != nil {
		server.Credentials = func(context.Context) (string, string, error) {
			password, _ := u.User.Password()
			return u.User.Username(), password, nil
		}
	}
	return New(server), nil
}

// WithLogger sets the logger, which is slog.Default otherwise, for all Locks on the server.
func (l *Locks) WithLogger(logger *slog.Logger) *Locks {
	l.b.logger.Store(logger)
	return l
}

// Lock waits until it holds the lock, at most until ctx ends: that is its only effect, and the lock is held until it is released. Without
// options the lease of 30 seconds is renewed.
//
// The error is ErrTimeout with that of ctx if another holder had the lock until then, ErrUnavailable in an outage, or ErrQueueFull,
// ErrModuleNeeded, ErrArgument. A wait goes on while a server restarts, without a deadline for a minute. No wait that ends leaves
// anything behind in the server.
func (l *Locks) Lock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, name, opts, (*claim).acquire)
}

// TryLock acquires the lock if it is free; otherwise the error is ErrTimeout. It does not wait.
func (l *Locks) TryLock(ctx context.Context, name string, opts ...Option) (*Hold, error) {
	return l.acquire(ctx, name, opts, (*claim).tryAcquire)
}

func (l *Locks) acquire(ctx context.Context, name string, opts []Option, how func(*claim, context.Context) (*claim, error)) (*Hold, error) {
	c, err := l.claim(name, opts)
	if err == nil {
		var found *claim
		if found, err = how(c, ctx); err == nil {
			return l.hold(found, found == c)
		}
	}
	return nil, public(name, "acquire", err)
}

func (l *Locks) claim(name string, opts []Option) (*claim, error) {
	o, err := readOptions(name, opts)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err != nil:
		return nil, err
	case l.isClosed:
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, errClosed)
	}
	token := randomText()
	if o.label != nil {
		token = *o.label + ":" + token
	}
	return &claim{options: o, b: l.b, name: name, token: token, locks: l}, nil
}

// hold returns the hold of a claim that has begun, or begins now.
func (l *Locks) hold(c *claim, isNew bool) (*Hold, error) {
	l.mu.Lock()
	isClosed := l.isClosed
	if c.renew || c.session {
		l.held[c] = struct{}{}
	}
	l.mu.Unlock()
	if isNew {
		c.begin()
	}
	h := newHold(c)
	if isClosed {
		_ = h.Release(context.Background())
		return nil, &LockError{Name: c.name, Op: "acquire", Err: errClosed}
	}
	return h, nil
}

func (l *Locks) forget(c *claim) {
	l.mu.Lock()
	delete(l.held, c)
	l.mu.Unlock()
}

// Do runs work while it holds the lock, and waits for the release, also if work fails or panics. The context of work ends when the lock
// is lost, with a cause that is ErrLost. The error is that of work, joined with that of the release.
func (l *Locks) Do(ctx context.Context, name string, work func(ctx context.Context) error, opts ...Option) (err error) {
	h, err := l.Lock(ctx, name, opts...)
	if err != nil {
		return err
	}
	return h.do(ctx, work)
}

// Several acquires locks in the order of their names, within one patience. The Hold is that of all: it is lost when one of them is, and
// none is held if one cannot be acquired. Locks that are acquired one by one elsewhere must be in the same order.
func (l *Locks) Several(ctx context.Context, names []string, opts ...Option) (*Hold, error) {
	all := &Hold{}
	sorted := slices.Sorted(slices.Values(names))
	if len(sorted) == 0 || len(slices.Compact(slices.Clone(sorted))) < len(sorted) {
		return nil, public(strings.Join(names, ", "), "acquire", fmt.Errorf("%w: it needs names, each once", ErrArgument))
	}
	for _, name := range sorted {
		h, err := l.Lock(ctx, name, opts...)
		if err != nil {
			_ = all.Release(context.WithoutCancel(ctx))
			return nil, err
		}
		all.parts = append(all.parts, h)
	}
	return all, nil
}

// Attach takes over a lock that Hold.Detach has left, by its token, with the kind and the lease of the options.
func (l *Locks) Attach(ctx context.Context, name, token string, opts ...Option) (*Hold, error) {
	c, err := l.claim(name, opts)
	if err == nil && token == "" {
		err = fmt.Errorf("%w: it needs a token", ErrArgument)
	}
	if err != nil {
		return nil, public(name, "attach", err)
	}
	c.token, c.isKnown, c.sentAt = token, true, time.Now()
	err = c.extend(ctx, c.lease, false)
	if err == nil && c.session {
		_, err = c.take(ctx, false)
	}
	if isNotHeld(err) {
		err = ErrLost
	}
	if err != nil {
		return nil, public(name, "attach", err)
	}
	return l.hold(c, true)
}

// Close releases what is still held, unless it has a lease that is not renewed, waits until the server has all releases, at most until ctx ends, and closes the connection if
// nothing else of the process uses it.
func (l *Locks) Close(ctx context.Context) error {
	l.mu.Lock()
	wasClosed := l.isClosed
	l.isClosed = true
	held := l.held
	l.held = map[*claim]struct{}{}
	l.mu.Unlock()
	if wasClosed {
		return nil
	}
	for c := range held {
		l.b.log().Warn("a lock was not released before its Locks were closed", "lock", c.name)
		c.abandon()
	}
	defer l.b.leave()
	return l.b.settle(ctx, "", maxLease)
}
