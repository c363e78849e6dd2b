package redislock_test

import (
	"context"
	"errors"
	"fmt"
	"time"

	redislock "redis-lock/clients/go"
)

func ExampleLocks_Do() {
	ctx := context.Background()
	locks, err := redislock.Open("redis://localhost:6379/0")
	if err != nil {
		panic(err)
	}
	defer locks.Close(ctx)
	err = locks.Do(ctx, "door", func(ctx context.Context) error {
		// The context ends when the lock is lost.
		return ctx.Err()
	})
	if errors.Is(err, redislock.ErrLost) {
		fmt.Println("another process may have the lock")
	}
}

func ExampleLocks_Lock() {
	locks, err := redislock.Open("redis://localhost:6379/0")
	if err != nil {
		panic(err)
	}
	patience, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	hold, err := locks.Lock(patience, "door", redislock.Lease(time.Minute), redislock.Label("billing"))
	switch {
	case errors.Is(err, redislock.ErrTimeout):
		fmt.Println("another process has the lock")
		return
	case err != nil:
		fmt.Println("an outage, or a mistake:", err)
		return
	}
	defer hold.Release(context.Background())
	token, err := hold.Fence(context.Background())
	fmt.Println("write with token", token, err)
}

func ExampleLocks_Observe() {
	locks, err := redislock.Open("redis://localhost:6379/0")
	if err != nil {
		panic(err)
	}
	for leader, err := range locks.Observe(context.Background(), "leader") {
		fmt.Println(leader, err)
	}
}
