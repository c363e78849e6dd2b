package redislock

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

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
	hasWarned             sync.Once
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
			Server: server, queues: queues{byKey: map[string][]*turn{}}, conns: map[string]*conn{}, slots: map[uint16]string{},
			topics: map[string]map[chan string]struct{}{}, watches: map[string]*watch{}, owners: map[string]*claim{}, unsent: map[string]int{},
			// Zero is before all that is heard.
			epoch: time.Now().Add(-time.Second),
		}
		b.ctx, b.cancel = context.WithCancel(context.Background())
		b.logger.Store(slog.Default())
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

// warn warns once.
func (b *backend) warn(text string) { b.hasWarned.Do(func() { b.logger.Load().Warn(text) }) }

func (b *backend) isIdle() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.topics) == 0 && len(b.watches) == 0
}

func (b *backend) hasModule() bool { return int64(time.Since(b.epoch)) >= b.scriptsUntil.Load() }

// heard notes that the server has replied.
func (b *backend) heard() { b.heardAt.Store(int64(time.Since(b.epoch))) }

// silentFor is the time since the server has replied, very long if it never has.
func (b *backend) silentFor() time.Duration {
	if b.heardAt.Load() == 0 {
		return maxLease
	}
	return time.Since(b.epoch) - time.Duration(b.heardAt.Load())
}

// wasHeardLately tells that the server has replied so lately that it needs no probe.
func (b *backend) wasHeardLately() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.silentFor() < min(probeAfter, time.Since(b.lostAt))
}

// lost notes that a connection is lost: another node may have its slots.
func (b *backend) lost(c *conn, wasOpen bool, cause error) {
	b.mu.Lock()
	if b.conns[c.address] == c {
		delete(b.conns, c.address)
	}
	maps.DeleteFunc(b.slots, func(_ uint16, address string) bool { return address == c.address })
	b.lostAt = time.Now()
	if !wasOpen && cause != errClosed {
		b.failedAt = b.lostAt
	}
	b.mu.Unlock()
	// If none was open, two waits without a server would wake each other.
	if wasOpen && cause != errClosed {
		b.hear("lost")
	}
}

// sleep pauses. It returns false if the context has ended.
func sleep(ctx context.Context, pause time.Duration) bool {
	select {
	case <-time.After(pause):
		return true
	case <-ctx.Done():
		return false
	}
}
