package redislock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// The classes of errors, for [errors.Is].
var (
	// ErrTimeout: the lock was not free until the context ended, or for TryLock at all.
	ErrTimeout = errors.New("not free in time")
	// ErrLost: the lock is no longer held: its lease has ended, it was deleted, or its session has ended.
	ErrLost = errors.New("no longer held")
	// ErrQueueFull: as many as MaxWaiters or the server allows wait already.
	ErrQueueFull = errors.New("the queue is full")
	// ErrModuleNeeded: the server has not loaded the module redis-lock, which this feature needs.
	ErrModuleNeeded = errors.New("the server needs the module redis-lock for this")
	// ErrUnavailable: the server cannot be reached, or cannot decide at the moment.
	ErrUnavailable = errors.New("the server is not available")
	// ErrArgument: no server would take the arguments. Nothing was sent.
	ErrArgument = errors.New("invalid argument")
)

// LockError is the error of all functions of this package. Err wraps one of the classes above, and where a context has ended its
// error, or is an error reply of the server.
type LockError struct {
	// Name is the name of the lock.
	Name string
	// Op is the operation: acquire, release, extend, fence, attach, hold, observe.
	Op  string
	Err error
}

func (e *LockError) Error() string { return fmt.Sprintf("redislock: %s %q: %v", e.Op, e.Name, e.Err) }

func (e *LockError) Unwrap() error { return e.Err }

// The reasons for which a command has no reply. The server may have executed one that was sent.
var (
	errNotSent    = errors.New("no connection")
	errUnanswered = errors.New("the connection was lost")
)

func isDisconnected(err error) bool {
	return errors.Is(err, errNotSent) || errors.Is(err, errUnanswered)
}

// serverError is an error reply. It begins with its code.
type serverError string

func (e serverError) Error() string { return string(e) }

// codeOf returns the code of an error reply, or nothing for another error.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	var reply serverError
	if !errors.As(err, &reply) {
		return ""
	}
	if strings.Contains(strings.ToLower(string(reply)), "unknown command") {
		return "UNKNOWN"
	}
	code, _, _ := strings.Cut(string(reply), " ")
	return code
}

// isNotHeld tells that the token does not hold the lock.
func isNotHeld(err error) bool {
	return slices.Contains([]string{"NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM"}, codeOf(err))
}

var passing = []string{"LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "BUSY", "REPLACED"}

// isPassing tells that the same command may succeed later.
func isPassing(err error) bool {
	if code := codeOf(err); code != "" {
		return slices.Contains(passing, code)
	}
	// What is no server does not become one.
	return isDisconnected(err) && !errors.Is(err, ErrArgument)
}

// public returns the error that a caller of the package receives.
func public(name, op string, err error) error {
	var known *LockError
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case codeOf(err) == "QUEUEFULL":
		err = fmt.Errorf("%w: %w", ErrQueueFull, err)
	case errors.Is(err, ErrArgument) || errors.Is(err, ErrTimeout) || errors.Is(err, ErrUnavailable):
	case isDisconnected(err) || isPassing(err) || errors.Is(err, context.DeadlineExceeded):
		err = fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return &LockError{Name: name, Op: op, Err: err}
}

func lostError(name, op string) error { return &LockError{Name: name, Op: op, Err: ErrLost} }
