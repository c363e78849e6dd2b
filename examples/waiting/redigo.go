// Waits for a lock in slices: redigo 1.8. DoWithTimeout notices a server that is gone. A connection must not be closed while
// another goroutine waits for its reply: cancel between two slices. See docs/guides/clients.md.

package main

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"log"
	"strings"
	"time"

	"github.com/gomodule/redigo/redis"
)

const slice = 2000 * time.Millisecond

func dial() (redis.Conn, error) {
	return redis.Dial("tcp", "127.0.0.1:6379")
}

func wait(key, token string, lease, patience time.Duration) (bool, error) {
	waiting, err := dial()
	if err != nil {
		return false, err
	}
	defer waiting.Close()
	end := time.Now().Add(patience)
	for left := patience; left >= time.Millisecond; left = time.Until(end) {
		block := left
		if block > slice {
			block = slice
		}
		reply, err := redis.DoWithTimeout(waiting, block+5*time.Second, "LOCK.ACQUIRE", key, token,
			"PX", lease.Milliseconds(), "BLOCK", block.Milliseconds())
		if reply != nil || err != nil {
			return reply != nil, err
		}
	}
	return false, nil
}

func release(key, token string, held bool) error {
	client, err := dial()
	if err != nil {
		return err
	}
	defer client.Close()
	_, err = client.Do("LOCK.RELEASE", key, token)
	if refused, ok := err.(redis.Error); ok && !held {
		code, _, _ := strings.Cut(string(refused), " ")
		if code == "NOTHELD" || code == "NOTOWNER" {
			return nil
		}
	}
	return err
}

func withLock(key string, lease, patience time.Duration, work func(token string)) (held bool, err error) {
	bytes := make([]byte, 16)
	if _, err := rand.Read(bytes); err != nil {
		return false, err
	}
	token := hex.EncodeToString(bytes)
	defer func() {
		if failed := release(key, token, held); err == nil {
			err = failed
		}
	}()
	held, err = wait(key, token, lease, patience)
	if held {
		work(token)
	}
	return held, err
}

func main() {
	_, err := withLock("door", 30000*time.Millisecond, 20000*time.Millisecond, func(token string) {
		fmt.Println("the door is ours")
	})
	if err != nil {
		log.Fatal(err)
	}
}
