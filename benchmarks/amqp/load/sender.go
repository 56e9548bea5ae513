package main

import (
	"encoding/binary"
	"fmt"
	"time"
)

// attachSenders attaches, and waits for the answer; frames are then read by readOutcomes. Where deliveries are settled,
// a second, unsettled link takes the last one.
func (c *connection) attachSenders(asked *request) error {
	if !asked.Settled {
		return c.attachSender(asked, asked.Address, 0, modeUnsettled)
	}
	if err := c.attachSender(asked, asked.Address, 0, modeSettled); err != nil {
		return err
	}
	return c.attachSender(asked, asked.Address, proofHandle, modeUnsettled)
}

func (c *connection) attachSender(asked *request, address string, handle uint32, mode uint8) error {
	source := described{code: 0x28, list: []any{"load"}}
	target := described{code: 0x29, list: []any{address, uint32(0), nil, uint32(0), false, nil, asked.capability()}}
	name := fmt.Sprintf("load-%d", handle)
	attach := performative(opAttach, name, handle, roleSender, mode, uint8(0), source, target, nil, nil, uint32(0))
	if err := c.write(attach); err != nil {
		return err
	}
	return c.until(opAttach, func(list fields) error {
		list.skip(6)
		if target := list.raw(); len(target) == 0 || target[0] == 0x40 {
			return fmt.Errorf("the peer refused the link to %s", address)
		}
		return nil
	})
}

// Where a transfer has its list's size and its handle; the handle is 0, encoded in one byte.
const (
	listSizeAt  = 12
	handleAt    = 14
	proofHandle = 1
)

// message is encoded once; its message-id is overwritten for each delivery.
type message struct {
	data []byte
	id   int
}

func newMessage(size int) message {
	data := put(nil, described{code: 0x70, list: []any{true}})
	properties := put(nil, described{code: 0x73, list: []any{uint64(0), nil, nil, "bench"}})
	id := len(data) + 3 + 1 + 8 + 1 // descriptor, list32 with size and count, constructor of the ulong
	data = append(data, properties...)
	body := make([]byte, size)
	random := uint32(2463534242)
	for at := range body {
		random ^= random << 13
		random ^= random >> 17
		random ^= random << 5
		body[at] = byte(random)
	}
	return message{put(data, described{code: 0x75, bare: body}), id}
}

// transfer encodes one delivery; a settled one goes over the first link, as an unsettled one does where all are.
func (m message) transfer(out []byte, delivery uint32, settled bool) []byte {
	start := len(out)
	// list8 with: handle 0, delivery-id, delivery-tag, message-format 0, settled.
	out = append(out, 0, 0, 0, 0, 2, 0, 0, 0, 0x00, 0x53, opTransfer, 0xc0, 15, 5, 0x43, 0x70)
	out = binary.BigEndian.AppendUint32(out, delivery)
	out = append(out, 0xa0, 4)
	out = binary.BigEndian.AppendUint32(out, delivery)
	out = append(out, 0x43, 0x42)
	if settled {
		out[len(out)-1] = 0x41
	}
	at := len(out)
	out = append(out, m.data...)
	binary.BigEndian.PutUint64(out[at+m.id:], uint64(delivery))
	binary.BigEndian.PutUint32(out[start:], uint32(len(out)-start))
	return out
}

// sendAll sends so many and waits for what proves that all were taken: all outcomes, or, with settled ones, the outcome
// of an unsettled last one.
func (c *connection) sendAll(m message, count uint32, inFlight uint32, settled bool) error {
	if !settled {
		return c.sendMost(m, count, inFlight, false)
	}
	if err := c.sendMost(m, count-1, inFlight, true); err != nil {
		return err
	}
	return c.prove(m, count-1)
}

// sendMost sends over the first link; where deliveries are unsettled, it waits for their outcomes.
func (c *connection) sendMost(m message, count uint32, inFlight uint32, settled bool) error {
	buffer := make([]byte, 0, bufferBytes+len(m.data)+64)
	for next := uint32(0); next < count; {
		allowed, err := c.room(next, inFlight, settled, count)
		if err != nil {
			return err
		}
		buffer = buffer[:0]
		for ; allowed > 0 && len(buffer) < bufferBytes; allowed-- {
			buffer = m.transfer(buffer, next, settled)
			next++
		}
		c.socket.SetWriteDeadline(time.Now().Add(silenceMax))
		if err := c.write(buffer); err != nil {
			return err
		}
	}
	if settled {
		return nil
	}
	return c.allSettled(count)
}

// prove sends one message over the second link and waits until it is accepted.
func (c *connection) prove(m message, next uint32) error {
	c.mutex.Lock()
	for c.proofCredit == 0 && c.failure == nil {
		c.changed.Wait()
	}
	err := c.failure
	c.mutex.Unlock()
	if err != nil {
		return err
	}
	last := m.transfer(nil, next, false)
	last[handleAt] = 0x52
	last = append(last[:handleAt+1], append([]byte{proofHandle}, last[handleAt+1:]...)...)
	last[listSizeAt]++
	binary.BigEndian.PutUint32(last, uint32(len(last)))
	if err := c.write(last); err != nil {
		return err
	}
	return c.allSettled(1)
}

// room waits until at least one message may be sent; how many may be.
func (c *connection) room(next, inFlight uint32, settled bool, count uint32) (uint32, error) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for {
		if c.failure != nil {
			return 0, c.failure
		}
		allowed := min(c.credit-next, c.window-next, count-next)
		if int32(c.credit-next) <= 0 || int32(c.window-next) <= 0 {
			allowed = 0
		}
		if !settled {
			allowed = min(allowed, inFlight-(next-c.settled))
		}
		if allowed > 0 {
			return allowed, nil
		}
		c.changed.Wait()
	}
}

func (c *connection) allSettled(count uint32) error {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for c.settled < count {
		if c.failure != nil {
			return c.failure
		}
		c.changed.Wait()
	}
	if c.rejected > 0 {
		return fmt.Errorf("%d messages were not accepted", c.rejected)
	}
	return nil
}

// readOutcomes reads the peer's flows and dispositions until the connection ends.
func (c *connection) readOutcomes(clock *clock) {
	for {
		c.socket.SetReadDeadline(time.Now().Add(silenceMax))
		body, err := c.frame()
		if err == nil && len(body) > 0 {
			err = c.outcome(body, clock)
		}
		if err != nil {
			c.fail(err)
			return
		}
	}
}

func (c *connection) outcome(body []byte, clock *clock) error {
	code, list, _, err := open(body)
	if err != nil {
		return err
	}
	switch code {
	case opFlow:
		next, isKnown := list.whole()
		window, _ := list.whole()
		list.skip(2)
		handle, isOfLink := list.whole()
		count, _ := list.whole()
		credit, _ := list.whole()
		c.mutex.Lock()
		if isKnown {
			c.window = uint32(next + window)
		}
		if isOfLink && handle == proofHandle {
			c.proofCredit = uint32(credit)
		} else if isOfLink {
			c.credit = uint32(count + credit)
		}
		c.changed.Broadcast()
		c.mutex.Unlock()
	case opDisposition:
		list.skip(1)
		first, _ := list.whole()
		last, isGiven := list.whole()
		if !isGiven {
			last = first
		}
		list.skip(1)
		state := list.raw()
		isAccepted := len(state) > 2 && state[2] == stateAccepted || len(state) > 9 && state[9] == stateAccepted
		c.decided(uint32(first), uint32(last), isAccepted, clock)
	case opDetach, opEnd, opClose:
		if code == opDetach {
			list.skip(2)
		}
		return fmt.Errorf("the peer ended it (%#x): %s", code, failure(list.raw()))
	}
	return nil
}

func (c *connection) decided(first, last uint32, isAccepted bool, clock *clock) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	count := last - first + 1
	c.settled += count
	if !isAccepted {
		c.rejected += count
	}
	if clock != nil {
		clock.settled(first, last)
	}
	c.changed.Broadcast()
}
