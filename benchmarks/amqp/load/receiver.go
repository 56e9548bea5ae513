package main

import (
	"fmt"
	"sync/atomic"
	"time"
)

// attachReceiver attaches; credit is given by receiveAll.
func (c *connection) attachReceiver(asked *request, address, offset string) error {
	mode := modeUnsettled
	if asked.Settled {
		mode = modeSettled
	}
	var filters any
	if offset != "" {
		name := symbol("amqp:event-streams-delivery-annotations-filter")
		bound := symbolMap{{"event-streams-offset", symbol(offset)}}
		filters = symbolMap{{name, described{code: 0x200, bare: bound}}}
	}
	source := described{code: 0x28, list: []any{
		address, uint32(0), nil, uint32(0), false, nil, nil, filters, nil, nil, asked.capability(),
	}}
	target := described{code: 0x29, list: []any{"load"}}
	attach := performative(opAttach, "load", uint32(0), roleReceiver, mode, uint8(0), source, target)
	if err := c.write(attach); err != nil {
		return err
	}
	return c.until(opAttach, func(list fields) error {
		list.skip(5)
		if source := list.raw(); len(source) == 0 || source[0] == 0x40 {
			return fmt.Errorf("the peer refused the link to %s", address)
		}
		list.skip(3)
		count, _ := list.whole()
		c.sent = uint32(count)
		return nil
	})
}

func (c *connection) giveCredit(deliveries, transfers, credit uint32) error {
	flow := performative(opFlow, transfers, uint32(sessionWindow), uint32(0), uint32(sessionWindow),
		uint32(0), c.sent+deliveries, credit)
	return c.write(flow)
}

// stock is what receivers have to receive: a part each of a log, or all together what a queue has. A queue gives to whom it
// likes: RabbitMQ gives some more than the credit that they gave.
type stock struct {
	left    atomic.Int64
	sharers []*connection // who is waiting for messages when the last one comes
}

// took counts one message; the last one ends the waiting.
func (s *stock) took() {
	if s.left.Add(-1) == 0 {
		for _, c := range s.sharers {
			c.socket.SetReadDeadline(time.Now())
		}
	}
}

// receiver is a connection that receives.
type receiver struct {
	*connection
	size      int
	credit    uint32
	isSettled bool

	received, transfers uint32
	decided, given      uint32
	firstID, bytes      uint32
}

// receiveAll receives until nothing is left, tops credit up when half of it is used, and accepts in ranges.
func (r *receiver) receiveAll(s *stock) error {
	if err := r.topUp(s); err != nil {
		return err
	}
	for {
		r.socket.SetReadDeadline(time.Now().Add(silenceMax))
		if s.left.Load() <= 0 {
			break
		}
		body, err := r.frame()
		if err != nil && s.left.Load() <= 0 {
			break
		}
		if err == nil && len(body) > 0 {
			err = r.take(body, s)
		}
		if err != nil {
			return err
		}
	}
	return r.accept()
}

func (r *receiver) take(body []byte, s *stock) error {
	code, list, payload, err := open(body)
	if err != nil {
		return err
	}
	switch code {
	case opTransfer:
	case opDetach, opEnd, opClose:
		if code == opDetach {
			list.skip(2)
		}
		return fmt.Errorf("the peer ended it (%#x): %s", code, failure(list.raw()))
	default:
		return nil
	}
	r.transfers++
	list.skip(1)
	if id, isGiven := list.whole(); isGiven && r.transfers == 1 {
		r.firstID = uint32(id)
	}
	list.skip(3)
	r.bytes += uint32(len(payload))
	if list.truth() {
		return nil
	}
	if r.bytes < uint32(r.size) {
		return fmt.Errorf("a message of %d bytes, %d expected", r.bytes, r.size)
	}
	r.bytes = 0
	r.received++
	s.took()
	if r.received-r.decided >= (r.credit+1)/2 {
		if err := r.accept(); err != nil {
			return err
		}
	}
	if int32(r.given-r.received) <= int32(r.credit/2) {
		return r.topUp(s)
	}
	return nil
}

// topUp gives credit, but none for more than is left where nobody else takes from it.
func (r *receiver) topUp(s *stock) error {
	credit := r.credit
	if len(s.sharers) == 1 {
		credit = min(credit, uint32(max(0, s.left.Load())))
	}
	if r.given == r.received+credit {
		return nil
	}
	r.given = r.received + credit
	return r.giveCredit(r.received, r.transfers, credit)
}

func (r *receiver) accept() error {
	if r.isSettled || r.decided == r.received {
		return nil
	}
	accepted := described{code: stateAccepted}
	first, last := r.firstID+r.decided, r.firstID+r.received-1
	r.decided = r.received
	return r.write(performative(opDisposition, true, first, last, true, accepted))
}
