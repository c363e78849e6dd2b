package examples

import (
	"context"
	"fmt"
	"sync"

	"github.com/caddyserver/certmagic"

	redislock "redis-lock/clients/go"
)

// CertificateLocker is the part of a storage for certmagic that locks: embed it next to what stores.
type CertificateLocker struct {
	Locks *redislock.Locks
	holds sync.Map
}

var _ certmagic.Locker = (*CertificateLocker)(nil)

// Lock waits until no other process obtains the certificate.
func (l *CertificateLocker) Lock(ctx context.Context, name string) error {
	hold, err := l.Locks.Lock(ctx, "certificate:"+name)
	if err == nil {
		l.holds.Store(name, hold)
	}
	return err
}

// Unlock releases what Lock has acquired.
func (l *CertificateLocker) Unlock(ctx context.Context, name string) error {
	hold, ok := l.holds.LoadAndDelete(name)
	if !ok {
		return fmt.Errorf("certificate %s is not locked here", name)
	}
	return hold.(*redislock.Hold).Release(ctx)
}
