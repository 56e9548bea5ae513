package main

import (
	"errors"
	"fmt"
	"sync"
	"time"
)

const idleFor = 3 * time.Second

// work is an operation: what each connection does before and after the clock starts.
type work struct {
	attach    func(c *connection, number int) error
	work      func(c *connection, number int) error
	latencies func() []time.Duration
}

func sending(asked *request) work {
	m := newMessage(asked.Size)
	return work{
		attach: func(c *connection, number int) error {
			if err := c.attachSenders(asked); err != nil {
				return err
			}
			c.hasReader = true
			go c.readOutcomes(nil)
			return nil
		},
		work: func(c *connection, number int) error {
			return c.sendAll(m, share(asked.Messages, asked.Connections, number), uint32(asked.InFlight), asked.Settled)
		},
	}
}

func receiving(asked *request) work {
	together := &stock{sharers: make([]*connection, asked.Connections)}
	together.left.Store(int64(asked.Messages))
	return work{
		attach: func(c *connection, number int) error {
			together.sharers[number] = c
			offset := ""
			if asked.Offsets {
				offset = fmt.Sprintf("%020d", asked.Messages*number/asked.Connections)
			}
			return c.attachReceiver(asked, asked.Address, offset)
		},
		work: func(c *connection, number int) error {
			s := together
			if asked.Offsets {
				s = &stock{sharers: []*connection{c}}
				s.left.Store(int64(share(asked.Messages, asked.Connections, number)))
			}
			r := &receiver{connection: c, size: asked.Size, credit: uint32(asked.Credit), isSettled: asked.Settled}
			return r.receiveAll(s)
		},
	}
}

// clock keeps when deliveries were due, and how long their outcomes took from then.
type clock struct {
	mutex sync.Mutex
	due   []time.Time
	took  []time.Duration
}

func (k *clock) settled(first, last uint32) {
	now := time.Now()
	k.mutex.Lock()
	for n := first; n <= last && int(n) < len(k.due); n++ {
		k.took = append(k.took, now.Sub(k.due[n]))
	}
	k.mutex.Unlock()
}

// pacing sends at a fixed rate, whatever the answers do, and measures from when a message was due.
func pacing(asked *request) work {
	m := newMessage(asked.Size)
	clocks := make([]*clock, asked.Connections)
	interval := time.Duration(float64(time.Second) * float64(asked.Connections) / asked.Rate)
	return work{
		attach: func(c *connection, number int) error {
			if err := c.attachSenders(asked); err != nil {
				return err
			}
			clocks[number] = &clock{}
			c.hasReader = true
			go c.readOutcomes(clocks[number])
			return nil
		},
		work: func(c *connection, number int) error {
			count := share(asked.Messages, asked.Connections, number)
			due := time.Now().Add(interval * time.Duration(number) / time.Duration(asked.Connections))
			for next := uint32(0); next < count; next++ {
				time.Sleep(time.Until(due))
				clocks[number].mutex.Lock()
				clocks[number].due = append(clocks[number].due, due)
				clocks[number].mutex.Unlock()
				if _, err := c.room(next, count, false, count); err != nil {
					return err
				}
				if err := c.write(m.transfer(nil, next, false)); err != nil {
					return err
				}
				due = due.Add(interval)
			}
			return c.allSettled(count)
		},
		latencies: func() []time.Duration {
			var all []time.Duration
			for _, k := range clocks {
				all = append(all, k.took...)
			}
			return all
		},
	}
}

// idling is connected, with an empty session, and says nothing but heartbeats, for some seconds.
func idling(*request) work {
	return work{
		attach: func(c *connection, number int) error {
			c.beat()
			return nil
		},
		work: func(c *connection, number int) error {
			time.Sleep(idleFor)
			c.mutex.Lock()
			defer c.mutex.Unlock()
			return c.failure
		},
	}
}

// creditless is attached to a log and never gives credit.
func creditless(asked *request) work {
	return work{
		attach: func(c *connection, number int) error {
			if err := c.attachReceiver(asked, asked.Address, offsetOfAll(asked)); err != nil {
				return err
			}
			c.beat()
			return nil
		},
		work: nothing,
	}
}

// stalling gives credit for everything and never reads again.
func stalling(asked *request) work {
	return work{
		attach: func(c *connection, number int) error {
			if err := c.attachReceiver(asked, asked.Address, offsetOfAll(asked)); err != nil {
				return err
			}
			return c.giveCredit(0, 0, 1<<30)
		},
		work: nothing,
	}
}

// returning gives every message back at once, as one that it failed to process, and asks for the next.
func returning(asked *request) work {
	return work{
		attach: func(c *connection, number int) error {
			return c.attachReceiver(asked, asked.Address, offsetOfAll(asked))
		},
		work: func(c *connection, number int) error {
			c.hasReader = true
			c.socket.SetDeadline(time.Time{})
			go func() { c.fail(c.giveBackAll(uint32(asked.Credit))) }()
			return nil
		},
	}
}

func (c *connection) giveBackAll(credit uint32) error {
	failed := described{code: stateModified, list: []any{true}}
	for received := uint32(0); ; {
		if received%credit == 0 {
			if err := c.giveCredit(received, received, credit); err != nil {
				return err
			}
		}
		body, err := c.frame()
		if err != nil {
			return err
		}
		if len(body) == 0 {
			continue
		}
		code, list, _, err := open(body)
		if err != nil || code != opTransfer {
			continue
		}
		list.skip(1)
		id, _ := list.whole()
		received++
		if err := c.write(performative(opDisposition, true, uint32(id), uint32(id), true, failed)); err != nil {
			return err
		}
	}
}

func offsetOfAll(asked *request) string {
	if asked.Offsets {
		return "@earliest"
	}
	return ""
}

func nothing(*connection, int) error { return nil }

// beat sends empty frames and reads whatever comes, until the connection ends.
func (c *connection) beat() {
	c.hasReader = true
	c.socket.SetDeadline(time.Time{})
	go func() {
		for c.write(frame(0, 0, nil)) == nil {
			time.Sleep(heartbeat)
		}
	}()
	go func() {
		for {
			body, err := c.frame()
			if err == nil && len(body) > 0 {
				if code, _, _, _ := open(body); code == opClose {
					err = errors.New("the peer closed the connection")
				}
			}
			if err != nil {
				c.fail(err)
				return
			}
		}
	}()
}
