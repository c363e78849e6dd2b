package redislock

import (
	"fmt"
	"strings"
	"time"
)

// Option says how a lock is acquired.
type Option func(*options)

type options struct {
	kind       kind
	lease      time.Duration
	hasLease   bool
	renew      bool
	session    bool
	permits    int
	owner      string
	label      string
	maxWaiters int
	err        error
}

// Lease sets the time after which the lock is free unless it is extended. Without it a lock has a lease of 30 seconds, which is renewed
// until the lock is released.
func Lease(d time.Duration) Option { return func(o *options) { o.lease, o.hasLease = d, true } }

// Renew renews a lease that Lease has set each time that a third of it has passed.
func Renew() Option { return func(o *options) { o.renew = true } }

// Session lets the server renew the lease while this process is connected. The lock is free a second after the process has ended, however
// it ends. It needs the module, and a lease of 100 ms or more.
func Session() Option { return func(o *options) { o.session = true } }

// Shared acquires a share: any number of holders at a time, and no holder of the lock alone. It needs the module.
func Shared() Option { return func(o *options) { o.setKind(shared) } }

// Permits acquires one of n permits of a semaphore: a share, of which there are n at most. It needs the module.
func Permits(n int) Option {
	return func(o *options) {
		o.setKind(shared)
		o.permits = n
		o.check(n >= 1 && n <= maxCount, "permits from 1 to 2147483647")
	}
}

// Reentrant lets an owner acquire the lock again while it holds it. Each acquisition has its Hold; the lock is free after the last
// release. Owners are names within this process: a request, a job.
func Reentrant(owner string) Option {
	return func(o *options) {
		o.setKind(reentrant)
		o.owner = owner
		o.check(owner != "", "an owner with a name")
	}
}

// Label sets what people see of the holder in LOCK.INFO: 1 to 64 printable characters of ASCII, without spaces.
func Label(label string) Option {
	return func(o *options) {
		o.label = label
		isOdd := strings.ContainsFunc(label, func(char rune) bool { return char <= ' ' || char > '~' })
		o.check(len(label) >= 1 && len(label) <= 64 && !isOdd, "a label of 1 to 64 characters of ASCII, without spaces")
	}
}

// MaxWaiters ends the call with ErrQueueFull if n wait for the lock already, in this process or at the server.
func MaxWaiters(n int) Option {
	return func(o *options) {
		o.maxWaiters = n
		o.check(n >= 1 && n <= maxCount, "from 1 to 2147483647 waiters")
	}
}

func (o *options) setKind(one kind) {
	o.check(o.kind == mutex || o.kind == one, "one kind: a share is not re-entrant")
	o.kind = one
}

func (o *options) check(isRight bool, needed string) {
	if !isRight && o.err == nil {
		o.err = fmt.Errorf("%w: it needs %s", ErrArgument, needed)
	}
}

// isKept tells that the lock is renewed until it is released.
func (o *options) isKept() bool { return o.renew || o.session }

// grace is how long the lock of a session is kept after a lost connection.
func (o *options) grace() time.Duration { return min(o.lease, maxGrace) }

// readOptions returns an error for what no server would take.
func readOptions(name string, list []Option) (options, error) {
	o := options{kind: mutex, lease: defaultLease}
	for _, set := range list {
		set(&o)
	}
	o.check(name != "", "a name")
	o.check(isLease(o.lease), "a lease from 1 ms to 100 years")
	o.check(!o.session || o.lease >= minSessionLease, "a lease of 100 ms or more for a session")
	o.check(!o.session || !o.renew, "a session or a renewal: the server renews a session")
	o.renew = o.renew || !o.hasLease && !o.session
	return o, o.err
}

func isLease(d time.Duration) bool { return d >= minLease && d <= maxLease }
