// Package goredis makes a server for redislock of a client of go-redis.
package goredis

import (
	"context"
	"fmt"
	"net"
	"reflect"
	"runtime"
	"strings"

	"github.com/redis/go-redis/v9"

	redislock "redis-lock/clients/go"
)

// From returns the server of a client: a Client, also of NewFailoverClient, or a ClusterClient. Its settings for connections are used, and
// none of its connections: hooks of the client see nothing of the locks.
func From(client redis.UniversalClient) redislock.Server {
	switch client := client.(type) {
	case *redis.Client:
		server := of(client.Options())
		server.ID = idOf(client)
		server.Dial = func(ctx context.Context, _ string) (net.Conn, error) { return dial(ctx, client.Options(), "") }
		return server
	case *redis.ClusterClient:
		options := client.Options()
		server := of(&redis.Options{
			Username: options.Username, Password: options.Password, CredentialsProvider: options.CredentialsProvider,
			CredentialsProviderContext: options.CredentialsProviderContext,
		})
		server.ID = fmt.Sprintf("goredis %p", client)
		server.Dial = func(ctx context.Context, address string) (net.Conn, error) {
			// Any node has the options of all.
			node, err := client.MasterForKey(ctx, address)
			if err != nil {
				return nil, err
			}
			return dial(ctx, node.Options(), address)
		}
		return server
	}
	return redislock.Server{ID: fmt.Sprintf("goredis %T", client), Dial: func(context.Context, string) (net.Conn, error) {
		return nil, fmt.Errorf("%w: a %T is not one server", redislock.ErrArgument, client)
	}}
}

func dial(ctx context.Context, options *redis.Options, address string) (net.Conn, error) {
	if address == "" {
		address = options.Addr
	}
	return options.Dialer(ctx, options.Network, address)
}

func of(options *redis.Options) redislock.Server {
	return redislock.Server{Database: options.DB, Credentials: func(ctx context.Context) (string, string, error) {
		switch {
		case options.CredentialsProviderContext != nil:
			return options.CredentialsProviderContext(ctx)
		case options.CredentialsProvider != nil:
			user, password := options.CredentialsProvider()
			return user, password, nil
		}
		return options.Username, options.Password, nil
	}}
}

// idOf is the same for clients that differ in nothing: a dialer of the caller may lead anywhere.
func idOf(client *redis.Client) string {
	o := client.Options()
	dialer := runtime.FuncForPC(reflect.ValueOf(o.Dialer).Pointer()).Name()
	isUsual := strings.HasPrefix(dialer, "github.com/redis/go-redis/v9.") && strings.Contains(dialer, "NewDialer")
	if !isUsual || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil {
		return fmt.Sprintf("goredis %p", client)
	}
	return fmt.Sprintf("goredis %s %s %d %p %q %q", o.Network, o.Addr, o.DB, o.TLSConfig, o.Username, o.Password)
}
