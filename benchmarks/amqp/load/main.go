// An AMQP load: `load JSON`. It prepares what it was asked for, says {"event":"ready"}, waits for a line on standard
// input, works, and says {"event":"done",...}. A client of its own, without any library: an encoded message is sent again
// and again, so that the client costs less than the server that is measured.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

type request struct {
	Operation   string  `json:"operation"` // in, out, paced, idle, stalled, creditless, returning
	Host        string  `json:"host"`
	Hostname    string  `json:"hostname"`
	User        string  `json:"user"`
	Password    string  `json:"password"`
	Address     string  `json:"address"`
	Queue       bool    `json:"queue"` // ask for a queue by the capability that JMS clients use
	Connections int     `json:"connections"`
	Messages    int     `json:"messages"` // in total
	Size        int     `json:"size"`
	Settled     bool    `json:"settled"`
	InFlight    int     `json:"in_flight"`
	Credit      int     `json:"credit"`
	Offsets     bool    `json:"offsets"` // the receivers start at offsets of their own
	Rate        float64 `json:"rate"`    // messages a second, all connections together

	number atomic.Int64
}

func (asked *request) capability() any {
	if asked.Queue {
		return symbol("queue")
	}
	return nil
}

func main() {
	asked := &request{Connections: 1, Size: 256, InFlight: 1000, Credit: 1000}
	check(json.Unmarshal([]byte(os.Args[1]), asked))
	works := map[string]func(*request) work{
		"in": sending, "out": receiving, "paced": pacing, "idle": idling, "stalled": stalling, "creditless": creditless,
		"returning": returning,
	}
	prepare, has := works[asked.Operation]
	if !has {
		check(fmt.Errorf("no such operation: %q", asked.Operation))
	}
	connections := connect(asked)
	run := prepare(asked)
	var ready sync.WaitGroup
	for number, c := range connections {
		ready.Add(1)
		go func() { defer ready.Done(); check(run.attach(c, number)) }()
	}
	ready.Wait()
	say(map[string]any{"event": "ready"})
	lines := bufio.NewScanner(os.Stdin)
	lines.Scan()
	cpu, began := cpuSeconds(), time.Now()
	var done sync.WaitGroup
	for number, c := range connections {
		done.Add(1)
		go func() { defer done.Done(); check(run.work(c, number)) }()
	}
	done.Wait()
	seconds := time.Since(began).Seconds()
	answer := map[string]any{"event": "done", "seconds": seconds, "client_cpu_seconds": cpuSeconds() - cpu}
	if run.latencies != nil {
		answer["p50_ms"], answer["p99_ms"], answer["latencies"] = percentiles(run.latencies())
	}
	say(answer)
	lines.Scan()
	for _, c := range connections {
		c.close()
	}
}

// connect opens all connections, some at a time.
func connect(asked *request) []*connection {
	connections := make([]*connection, asked.Connections)
	gate := make(chan struct{}, 16)
	var all sync.WaitGroup
	for number := range connections {
		all.Add(1)
		gate <- struct{}{}
		go func() {
			defer all.Done()
			c, err := asked.dial()
			check(err)
			connections[number] = c
			<-gate
		}()
	}
	all.Wait()
	return connections
}

func share(total, connections, number int) uint32 {
	return uint32(total*(number+1)/connections - total*number/connections)
}

func percentiles(latencies []time.Duration) (float64, float64, int) {
	sort.Slice(latencies, func(one, other int) bool { return latencies[one] < latencies[other] })
	at := func(percent int) float64 {
		return latencies[min(len(latencies)-1, len(latencies)*percent/100)].Seconds() * 1000
	}
	return at(50), at(99), len(latencies)
}

func cpuSeconds() float64 {
	var usage syscall.Rusage
	check(syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return float64(usage.Utime.Nano()+usage.Stime.Nano()) / 1e9
}

var saying sync.Mutex

func say(line map[string]any) {
	saying.Lock()
	defer saying.Unlock()
	text, err := json.Marshal(line)
	if err != nil {
		panic(err)
	}
	os.Stdout.Write(append(text, '\n'))
}

func check(err error) {
	if err != nil {
		say(map[string]any{"event": "failed", "problem": err.Error()})
		os.Exit(1)
	}
}
