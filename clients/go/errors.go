package redislock

import (
	"context"
	"errors"
	"fmt"
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

// serverError is an error reply. It begins with its code.
type serverError string

func (e serverError) Error() string { return string(e) }

func (e serverError) code() string {
	if strings.Contains(strings.ToLower(string(e)), "unknown command") {
		return "UNKNOWN"
	}
	code, _, _ := strings.Cut(string(e), " ")
	return code
}

// codeOf returns the code of an error reply, or nothing for another error.
func codeOf(err error) string {
	if err == nil {
		return ""
	}
	var reply serverError
	if errors.As(err, &reply) {
		return reply.code()
	}
	return ""
}

// disconnected is the error of a command without a reply.
type disconnected struct {
	cause error
	// wasSent tells that the server may have executed the command.
	wasSent bool
}

func (e *disconnected) Error() string { return e.cause.Error() }

func (e *disconnected) Unwrap() error { return e.cause }

// lostReply returns the error of a command without a reply, or nil for another error.
func lostReply(err error) *disconnected {
	if err == nil {
		return nil
	}
	var lost *disconnected
	errors.As(err, &lost)
	return lost
}

func isDisconnected(err error) bool { return lostReply(err) != nil }

func wasSent(err error) bool {
	lost := lostReply(err)
	return lost != nil && lost.wasSent
}

// isNotHeld tells that the token does not hold the lock.
func isNotHeld(err error) bool {
	switch codeOf(err) {
	case "NOTHELD", "NOTOWNER", "WRONGTYPE", "OTHERFORM":
		return true
	}
	return false
}

// isPassing tells that the same command may succeed later.
func isPassing(err error) bool {
	switch codeOf(err) {
	case "LOADING", "READONLY", "NOREPLICAS", "MASTERDOWN", "CLUSTERDOWN", "TRYAGAIN", "MISCONF", "BUSY", "REPLACED":
		return true
	}
	// A server that refuses the user, or is none, does so again.
	return isDisconnected(err) && codeOf(err) == "" && !errors.Is(err, ErrArgument)
}

// public returns the error that a caller of the package receives.
func public(name, op string, err error) error {
	if err == nil {
		return nil
	}
	var known *LockError
	switch {
	case errors.As(err, &known):
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
