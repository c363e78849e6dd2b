// Command driver is the driver of this package for clients/vectors/player.py.
package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"time"

	redislock "redis-lock/clients/go"
)

type step struct {
	name string
	opts []redislock.Option
	wait time.Duration
}

type driver struct {
	locks   *redislock.Locks
	mu      sync.Mutex
	holds   map[string]*redislock.Hold
	cancels map[string]context.CancelFunc
	ends    map[string]chan error
}

func main() {
	locks, err := redislock.Open("redis://" + os.Getenv("DRIVER_USER") + "127.0.0.1:" + os.Args[1])
	if err != nil {
		panic(err)
	}
	d := &driver{locks, sync.Mutex{}, map[string]*redislock.Hold{}, map[string]context.CancelFunc{}, map[string]chan error{}}
	fmt.Println("ready")
	for lines := bufio.NewScanner(os.Stdin); lines.Scan(); {
		d.step(strings.Fields(lines.Text()))
	}
}

// step runs a step. What may wait runs in a goroutine of its own.
func (d *driver) step(words []string) {
	id, rest := words[1], words[2:]
	ctx := context.Background()
	d.mu.Lock()
	defer d.mu.Unlock()
	hold := d.holds[id]
	switch words[0] {
	case "observe":
		ctx, d.cancels[id] = context.WithCancel(ctx)
		go func() {
			for label, err := range d.locks.Observe(ctx, rest[0]) {
				if err == nil {
					fmt.Println(id, "leader", cmp.Or(label, "none"))
				}
			}
		}()
	case "acquire", "try", "block", "several":
		ctx, d.cancels[id] = context.WithCancel(ctx)
		d.ends[id] = make(chan error, 1)
		go d.acquire(ctx, words[0], id, parse(rest), d.ends[id])
	case "end":
		d.end(id, nil)
	case "fail":
		d.end(id, errWork)
	case "cancel":
		d.cancels[id]()
	case "release":
		go say(id, "released", "", func() error { return hold.Release(ctx) })
	case "extend":
		go say(id, "extended", "", func() error { return hold.Extend(ctx, millis(rest[0])) })
	case "fence":
		go func() {
			token, err := hold.Fence(ctx)
			say(id, fmt.Sprintf("fence %d", token), "", func() error { return err })
		}()
	case "watch":
		lost := hold.Lost()
		go func() {
			<-lost
			fmt.Println(id, "lost")
		}()
	case "detach":
		token, err := hold.Detach()
		say(id, "token "+token, "", func() error { return err })
	case "attach":
		one := parse(append(rest[:1:1], rest[2:]...))
		go say(id, "held", "", func() error {
			hold, err := d.locks.Attach(ctx, one.name, rest[1], one.opts...)
			d.keep(id, hold)
			return err
		})
	case "repeat":
		go d.repeat(ctx, id, rest)
	default:
		fmt.Println("unsupported")
	}
}

func (d *driver) end(id string, err error) {
	if end := d.ends[id]; end != nil {
		end <- err
	}
}

func (d *driver) keep(id string, hold *redislock.Hold) {
	d.mu.Lock()
	d.holds[id] = hold
	d.mu.Unlock()
}

func (d *driver) acquire(ctx context.Context, how, id string, one step, end chan error) {
	if one.wait >= 0 {
		limited, cancel := context.WithTimeout(ctx, one.wait)
		defer cancel()
		ctx = limited
	}
	switch how {
	case "block":
		say(id, "released", "", func() error {
			return d.locks.Do(ctx, one.name, func(context.Context) error {
				fmt.Println(id, "held")
				return <-end
			}, one.opts...)
		})
	case "try":
		say(id, "held", "busy", func() error {
			hold, err := d.locks.TryLock(ctx, one.name, one.opts...)
			d.keep(id, hold)
			return err
		})
	default:
		say(id, "held", "timeout", func() error {
			if how == "several" {
				hold, err := d.locks.Several(ctx, strings.Split(one.name, ","), one.opts...)
				d.keep(id, hold)
				return err
			}
			hold, err := d.locks.Lock(ctx, one.name, one.opts...)
			d.keep(id, hold)
			return err
		})
	}
}

func (d *driver) repeat(ctx context.Context, id string, words []string) {
	times, _ := strconv.Atoi(words[0])
	one := parse(words[1:])
	count := func() int {
		runtime.GC()
		var stats runtime.MemStats
		runtime.ReadMemStats(&stats)
		return runtime.NumGoroutine() + int(stats.HeapObjects)/100
	}
	before := 0
	for n := range times + 50 {
		if n == 50 {
			before = count()
		}
		hold, err := d.locks.Lock(ctx, one.name, one.opts...)
		if err == nil {
			err = hold.Release(ctx)
		}
		if err != nil {
			say(id, "", "", func() error { return err })
			return
		}
	}
	fmt.Println(id, "left", max(count()-before, 0))
}

var errWork = errors.New("the work has failed")

// say prints what a call has become.
func say(id, done, timeout string, call func() error) {
	err := call()
	switch {
	case err == nil:
		fmt.Println(id, done)
	case errors.Is(err, errWork):
		fmt.Println(id, "failed")
	case errors.Is(err, context.Canceled):
		fmt.Println(id, "cancelled")
	case errors.Is(err, redislock.ErrTimeout):
		fmt.Println(id, timeout)
	default:
		fmt.Println(id, "error", class(err))
	}
}

func class(err error) string {
	for class, name := range map[error]string{
		redislock.ErrArgument: "argument", redislock.ErrUnavailable: "connection", redislock.ErrQueueFull: "full",
		redislock.ErrLost: "lost", redislock.ErrModuleNeeded: "module",
	} {
		if errors.Is(err, class) {
			return name
		}
	}
	return "server"
}

func parse(words []string) step {
	one := step{name: words[0], wait: -1}
	for _, word := range words[1:] {
		name, text, _ := strings.Cut(word, "=")
		number, _ := strconv.Atoi(text)
		switch name {
		case "lease":
			one.opts = append(one.opts, redislock.Lease(millis(text)))
		case "wait":
			one.wait = millis(text)
		case "permits":
			one.opts = append(one.opts, redislock.Permits(number))
		case "max_waiters":
			one.opts = append(one.opts, redislock.MaxWaiters(number))
		case "label":
			one.opts = append(one.opts, redislock.Label(text))
		case "session":
			one.opts = append(one.opts, redislock.Session())
		case "renew":
			one.opts = append(one.opts, redislock.Renew())
		case "shared":
			one.opts = append(one.opts, redislock.Shared())
		case "reentrant":
			one.opts = append(one.opts, redislock.Reentrant("driver"))
		default:
			fmt.Println("unsupported")
		}
	}
	return one
}

func millis(text string) time.Duration {
	number, _ := strconv.Atoi(text)
	return time.Duration(number) * time.Millisecond
}
