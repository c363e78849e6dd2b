package redislock

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
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

// Open returns the locks of a server by its address: redis://user:password@host:6379/0, or rediss:// with TLS. Nothing is sent yet.
func Open(address string) (*Locks, error) {
	u, err := url.Parse(address)
	if err != nil || u.Scheme != "redis" && u.Scheme != "rediss" {
		return nil, fmt.Errorf("redislock: %w: an address such as redis://localhost:6379/0 is needed", ErrArgument)
	}
	database, err := strconv.Atoi(cmp.Or(strings.Trim(u.Path, "/"), "0"))
	if err != nil {
		return nil, fmt.Errorf("redislock: %w: the database must be a number", ErrArgument)
	}
	dial := (&net.Dialer{}).DialContext
	if u.Scheme == "rediss" {
		dial = (&tls.Dialer{}).DialContext
	}
	return New(Server{
		ID: address, Database: database,
		Dial: func(ctx context.Context, node string) (net.Conn, error) {
			return dial(ctx, "tcp", cmp.Or(node, net.JoinHostPort(u.Hostname(), cmp.Or(u.Port(), "6379"))))
		},
		Credentials: func(context.Context) (string, string, error) {
			password, _ := u.User.Password()
			return u.User.Username(), password, nil
		},
	}), nil
}

// DialMaster returns a [Server.Dial] that asks sentinels for the address of a master each time. The user and the password are those of
// the sentinels, and may be empty.
func DialMaster(name string, sentinels []string, user, password string,
	dial func(ctx context.Context, address string, isSentinel bool) (net.Conn, error),
) func(context.Context, string) (net.Conn, error) {
	return func(ctx context.Context, _ string) (net.Conn, error) {
		failures := []error{fmt.Errorf("%w: no sentinel knows the master %q", ErrUnavailable, name)}
		for _, sentinel := range sentinels {
			link, err := dial(ctx, sentinel, true)
			if err == nil {
				var master string
				master, err = askSentinel(link, name, cmp.Or(user, "default"), password)
				_ = link.Close()
				if err == nil {
					link, err = dial(ctx, master, false)
				}
			}
			if err == nil {
				return link, nil
			}
			failures = append(failures, err)
		}
		return nil, errors.Join(failures...)
	}
}

func askSentinel(link net.Conn, name, user, password string) (string, error) {
	_ = link.SetDeadline(time.Now().Add(silence / 5))
	in := bufio.NewReader(link)
	if password != "" {
		if _, err := call(link, in, "AUTH", user, password); err != nil {
			return "", err
		}
	}
	answer, err := call(link, in, "SENTINEL", "GET-MASTER-ADDR-BY-NAME", name)
	if err != nil || len(answer.list) < 2 {
		return "", cmp.Or(err, errors.New("it knows no such master"))
	}
	return net.JoinHostPort(answer.list[0].text, answer.list[1].text), nil
}
