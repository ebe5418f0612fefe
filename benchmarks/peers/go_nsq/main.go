// The go-nsq contestant: the protocol of ../driver.py.
package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/nsqio/go-nsq"
)

type order struct {
	figure, host             string
	port                     int
	topic                    string
	count, warm, width, size int
}

type sample struct {
	Rate float64 `json:"rate"`
	CPU  float64 `json:"cpu"`
	P50  float64 `json:"p50"`
}

// work publishes so many messages and says what each call took.
type work func(count int) []time.Duration

func repeat(count int, call func() error) []time.Duration {
	taken := make([]time.Duration, 0, count)
	for i := 0; i < count; i++ {
		begun := time.Now()
		if err := call(); err != nil {
			log.Fatal(err)
		}
		taken = append(taken, time.Since(begun))
	}
	return taken
}

// inGoroutines shares the count among *width* goroutines on one producer.
func inGoroutines(width, count int, call func() error) []time.Duration {
	parts := make([][]time.Duration, width)
	var running sync.WaitGroup
	for i := range parts {
		running.Add(1)
		go func(i int) {
			defer running.Done()
			parts[i] = repeat(count/width, call)
		}(i)
	}
	running.Wait()
	return slices.Concat(parts...)
}

func workOf(o order, producer *nsq.Producer) work {
	body := bytes.Repeat([]byte("x"), o.size)
	publish := func() error { return producer.Publish(o.topic, body) }
	switch o.figure {
	case "sync":
		return func(count int) []time.Duration { return repeat(count, publish) }
	case "threads":
		return func(count int) []time.Duration { return inGoroutines(o.width, count, publish) }
	case "mpub":
		bodies := slices.Repeat([][]byte{body}, o.width)
		return func(count int) []time.Duration {
			return repeat(count/o.width, func() error { return producer.MultiPublish(o.topic, bodies) })
		}
	}
	log.Fatalf("no figure %q", o.figure)
	return nil
}

func cpuSeconds() float64 {
	var used syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &used); err != nil {
		log.Fatal(err)
	}
	return time.Duration(used.Utime.Nano() + used.Stime.Nano()).Seconds()
}

func play(o order) sample {
	switch o.figure {
	case "consume", "one", "latency", "unbuffered":
		return eat(o)
	}
	producer, err := nsq.NewProducer(fmt.Sprintf("%s:%d", o.host, o.port), nsq.NewConfig())
	if err != nil {
		log.Fatal(err)
	}
	producer.SetLoggerLevel(nsq.LogLevelError)
	defer producer.Stop()
	publish := workOf(o, producer)
	publish(o.warm)
	cpu, begun := cpuSeconds(), time.Now()
	taken := publish(o.count)
	elapsed := time.Since(begun).Seconds()
	cpu = cpuSeconds() - cpu
	slices.Sort(taken)
	return sample{
		Rate: float64(o.count) / elapsed,
		CPU:  cpu / float64(o.count) * 1e6,
		P50:  float64(taken[len(taken)/2].Nanoseconds()) / 1000,
	}
}

func main() {
	orders := bufio.NewScanner(os.Stdin)
	answers := json.NewEncoder(os.Stdout)
	for orders.Scan() {
		var o order
		_, err := fmt.Sscan(orders.Text(), &o.figure, &o.host, &o.port, &o.topic, &o.count, &o.warm, &o.width, &o.size)
		if err != nil {
			log.Fatal(err)
		}
		if err := answers.Encode(play(o)); err != nil {
			log.Fatal(err)
		}
	}
}
