package main

import (
	"fmt"
	"log"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nsqio/go-nsq"
)

const rdy = 200

// eater counts what its handlers get; of the figures latency and unbuffered it keeps what each took.
type eater struct {
	seen, target atomic.Int64
	done         chan struct{}
	timed        bool
	lock         sync.Mutex
	taken        []time.Duration
}

func (e *eater) HandleMessage(m *nsq.Message) error {
	if e.timed {
		left, err := strconv.ParseInt(string(m.Body[:19]), 10, 64)
		if err != nil {
			return err
		}
		e.lock.Lock()
		e.taken = append(e.taken, time.Duration(time.Now().UnixNano()-left))
		e.lock.Unlock()
	}
	if e.seen.Add(1) == e.target.Load() {
		close(e.done)
	}
	return nil
}

func (e *eater) wait(count int) {
	select {
	case <-e.done:
	case <-time.After(100 * time.Second):
		log.Fatalf("%d messages came, %d were awaited", e.seen.Load(), count)
	}
}

func eat(o order) sample {
	config := nsq.NewConfig()
	config.MaxInFlight = rdy
	if o.figure == "one" {
		config.MaxInFlight = 1
	}
	if o.figure == "unbuffered" {
		config.OutputBufferSize, config.OutputBufferTimeout = -1, -1
	}
	consumer, err := nsq.NewConsumer(o.topic, "bench", config)
	if err != nil {
		log.Fatal(err)
	}
	consumer.SetLoggerLevel(nsq.LogLevelError)
	timed := o.figure == "latency" || o.figure == "unbuffered"
	warm := &eater{done: make(chan struct{}), timed: timed}
	warm.target.Store(int64(o.warm))
	whole := &eater{done: make(chan struct{}), timed: timed}
	whole.target.Store(int64(o.count))
	consumer.AddConcurrentHandlers(nsq.HandlerFunc(func(m *nsq.Message) error {
		if warm.seen.Load() < warm.target.Load() {
			return warm.HandleMessage(m)
		}
		return whole.HandleMessage(m)
	}), o.width)
	if err := consumer.ConnectToNSQD(fmt.Sprintf("%s:%d", o.host, o.port)); err != nil {
		log.Fatal(err)
	}
	warm.wait(o.warm)
	cpu, begun := cpuSeconds(), time.Now()
	whole.wait(o.count)
	elapsed := time.Since(begun).Seconds()
	cpu = cpuSeconds() - cpu
	consumer.Stop()
	<-consumer.StopChan
	found := sample{Rate: float64(o.count) / elapsed, CPU: cpu / float64(o.count) * 1e6}
	if len(whole.taken) > 0 {
		slices.Sort(whole.taken)
		found.P50 = float64(whole.taken[len(whole.taken)/2].Nanoseconds()) / 1000
	}
	return found
}
