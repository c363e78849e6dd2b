// Package rueidis makes a server for redislock of the options of a client of rueidis.
package rueidis

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"

	"github.com/redis/rueidis"

	redislock "redis-lock/clients/go"
)

// From returns the server of a client with these options, which clients do not show: one server, a cluster, or with Sentinel
// the master. Hooks of the client see nothing of the locks.
func From(option rueidis.ClientOption) redislock.Server {
	dial := func(ctx context.Context, address string) (net.Conn, error) {
		return dialOne(ctx, &option, address, option.TLSConfig)
	}
	server := redislock.Server{
		ID: fmt.Sprint("rueidis ", option.InitAddress, option.SelectDB, option.Username, option.Password, option.Sentinel.MasterSet,
			fmt.Sprintf(" %p %p %p", option.TLSConfig, option.DialCtxFn, option.AuthCredentialsFn)),
		Database: option.SelectDB,
		Credentials: func(context.Context) (string, string, error) {
			if option.AuthCredentialsFn != nil {
				found, err := option.AuthCredentialsFn(rueidis.AuthCredentialsContext{})
				return found.Username, found.Password, err
			}
			return option.Username, option.Password, nil
		},
		Dial: func(ctx context.Context, address string) (net.Conn, error) {
			if address != "" {
				return dial(ctx, address)
			}
			return dialAny(ctx, option.InitAddress, dial)
		},
	}
	if set := option.Sentinel.MasterSet; set != "" {
		server.Dial = redislock.DialMaster(set, option.InitAddress, option.Sentinel.Username, option.Sentinel.Password,
			func(ctx context.Context, address string, isSentinel bool) (net.Conn, error) {
				if isSentinel {
					return dialOne(ctx, &option, address, option.Sentinel.TLSConfig)
				}
				return dial(ctx, address)
			})
	}
	return server
}

func dialAny(ctx context.Context, addresses []string, dial func(context.Context, string) (net.Conn, error)) (net.Conn, error) {
	failures := []error{fmt.Errorf("%w: InitAddress is empty", redislock.ErrUnavailable)}
	for _, address := range addresses {
		link, err := dial(ctx, address)
		if err == nil {
			return link, nil
		}
		failures = append(failures, err)
	}
	return nil, errors.Join(failures...)
}

func dialOne(ctx context.Context, option *rueidis.ClientOption, address string, secure *tls.Config) (net.Conn, error) {
	if option.DialCtxFn != nil {
		return option.DialCtxFn(ctx, address, &option.Dialer, secure)
	}
	if secure != nil {
		return (&tls.Dialer{NetDialer: &option.Dialer, Config: secure}).DialContext(ctx, "tcp", address)
	}
	return option.Dialer.DialContext(ctx, "tcp", address)
}
