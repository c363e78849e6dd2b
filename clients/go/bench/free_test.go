package main

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"testing"
	"time"
)

// BenchmarkFreeLock acquires and releases locks that are free, in a form for benchstat. The peers take turns if it runs several times
// with -count 1 each: go test -bench . -count 1 >>all; benchstat -col /peer all.
func BenchmarkFreeLock(b *testing.B) {
	if os.Getenv("SERVER") == "" || os.Getenv("MODULE") == "" {
		b.Skip("it needs SERVER and MODULE")
	}
	address, stop := startServer()
	defer stop()
	for _, goroutines := range []int{1, 100} {
		for _, peer := range peers {
			b.Run(fmt.Sprintf("goroutines=%d/peer=%s", goroutines, peer.name), func(b *testing.B) {
				lock, end := peer.open(address)
				defer end()
				var workers atomic.Int64
				b.SetParallelism(max(1, goroutines/runtime.GOMAXPROCS(0)))
				ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
				defer cancel()
				cycle := func(name string) {
					release, err := lock(ctx, name)
					if err != nil {
						b.Error(err)
						return
					}
					release()
				}
				for range 200 {
					cycle("warm")
				}
				b.ReportAllocs()
				b.ResetTimer()
				before := processorTime()
				if goroutines == 1 {
					for range b.N {
						cycle("free")
					}
				} else {
					b.RunParallel(func(loop *testing.PB) {
						name := fmt.Sprint("free", workers.Add(1))
						for loop.Next() {
							cycle(name)
						}
					})
				}
				b.ReportMetric(float64(processorTime()-before)/float64(b.N), "cpu-ns/op")
			})
		}
	}
}
