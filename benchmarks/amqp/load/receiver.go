package main

import (
	"fmt"
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

// receiveAll receives so many, tops credit up when half of it is used, and accepts in ranges.
func (c *connection) receiveAll(count, credit uint32, size int, settled bool) error {
	if err := c.giveCredit(0, 0, min(credit, count)); err != nil {
		return err
	}
	var received, transfers, decided, given, firstID, bytes uint32
	given = min(credit, count)
	bytes = 0
	for received < count {
		c.socket.SetReadDeadline(time.Now().Add(silenceMax))
		body, err := c.frame()
		if err != nil {
			return err
		}
		if len(body) == 0 {
			continue
		}
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
			continue
		}
		transfers++
		list.skip(1)
		if id, isGiven := list.whole(); isGiven && transfers == 1 {
			firstID = uint32(id)
		}
		list.skip(3)
		bytes += uint32(len(payload))
		if list.truth() {
			continue
		}
		if bytes < uint32(size) {
			return fmt.Errorf("a message of %d bytes, %d expected", bytes, size)
		}
		bytes = 0
		received++
		if !settled && (received-decided >= (credit+1)/2 || received == count) {
			accepted := described{code: stateAccepted}
			state := performative(opDisposition, true, firstID+decided, firstID+received-1, true, accepted)
			if err := c.write(state); err != nil {
				return err
			}
			decided = received
		}
		if given < count && given-received <= credit/2 {
			left := min(credit, count-received)
			if err := c.giveCredit(received, transfers, left); err != nil {
				return err
			}
			given = received + left
		}
	}
	return nil
}
