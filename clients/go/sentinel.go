package redislock

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"time"
)

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
					if link, err = dial(ctx, master, false); err == nil {
						return link, nil
					}
				}
			}
			failures = append(failures, err)
		}
		return nil, errors.Join(failures...)
	}
}

func askSentinel(link net.Conn, name, user, password string) (string, error) {
	_ = link.SetDeadline(time.Now().Add(silence / 5))
	var out []byte
	if password != "" {
		out = appendCommand(out, []string{"AUTH", user, password})
	}
	out = appendCommand(out, []string{"SENTINEL", "GET-MASTER-ADDR-BY-NAME", name})
	if _, err := link.Write(out); err != nil {
		return "", err
	}
	in := bufio.NewReader(link)
	answer, err := readValue(in)
	if err == nil && password != "" && answer.kind == '+' {
		answer, err = readValue(in)
	}
	if err != nil || len(answer.list) < 2 {
		return "", cmp.Or(err, error(serverError(cmp.Or(answer.text, "it knows no such master"))))
	}
	return net.JoinHostPort(answer.list[0].text, answer.list[1].text), nil
}
