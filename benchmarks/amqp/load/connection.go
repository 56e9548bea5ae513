package main

import (
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"time"
)

const (
	frameMax       = 64 * 1024
	sessionWindow  = 1 << 30
	bufferBytes    = 64 * 1024
	silenceMax     = 60 * time.Second
	closingMax     = 2 * time.Second
	heartbeat      = 10 * time.Second
	modeUnsettled  = uint8(0)
	modeSettled    = uint8(1)
	roleSender     = false
	roleReceiver   = true
	mechanismNone  = "ANONYMOUS"
	mechanismPlain = "PLAIN"
)

// connection is one connection with one session and at most one link.
type connection struct {
	socket net.Conn
	in     *bufio.Reader
	buffer []byte

	hasReader bool // a goroutine of its own reads frames until the connection ends

	mutex    sync.Mutex // of what follows: writer and reader share it
	changed  *sync.Cond
	failure  error
	credit   uint32 // delivery-count of our sender, and the credit on top of it
	sent     uint32 // delivery-count of the peer's sender, at first
	window   uint32 // how many transfers the peer's session still takes
	settled  uint32 // how many of ours have an outcome
	rejected uint32
	peerMax  uint32

	proofCredit uint32 // of the second link
}

func (asked *request) dial() (*connection, error) {
	socket, err := net.DialTimeout("tcp", asked.Host, silenceMax)
	if err != nil {
		return nil, err
	}
	c := &connection{socket: socket, in: bufio.NewReaderSize(socket, bufferBytes), peerMax: frameMax}
	c.changed = sync.NewCond(&c.mutex)
	if err := c.login(asked); err != nil {
		socket.Close()
		return nil, err
	}
	return c, nil
}

func (c *connection) login(asked *request) error {
	c.socket.SetDeadline(time.Now().Add(silenceMax))
	init := described{code: saslInit, list: []any{symbol(mechanismNone), []byte("load")}}
	if asked.User != "" {
		response := []byte("\x00" + asked.User + "\x00" + asked.Password)
		init.list = []any{symbol(mechanismPlain), response}
	}
	hello := append([]byte("AMQP\x03\x01\x00\x00"), frame(1, 0, put(nil, init))...)
	if err := c.write(hello); err != nil {
		return err
	}
	if err := c.header("AMQP\x03\x01\x00\x00"); err != nil {
		return err
	}
	for {
		body, err := c.frame()
		if err != nil {
			return err
		}
		code, list, _, err := open(body)
		if err != nil {
			return err
		}
		if code == saslOutcome {
			if outcome, _ := list.whole(); outcome != 0 {
				return fmt.Errorf("the peer refused the credentials: outcome %d", outcome)
			}
			break
		}
		if code != saslMechs {
			return fmt.Errorf("a SASL frame that was not expected: %#x", code)
		}
	}
	container := fmt.Sprintf("load-%d-%d", time.Now().UnixNano(), asked.number.Add(1))
	opening := []byte("AMQP\x00\x01\x00\x00")
	opening = append(opening, performative(opOpen, container, asked.Hostname, uint32(frameMax), uint16(255))...)
	begin := performative(opBegin, nil, uint32(0), uint32(sessionWindow), uint32(sessionWindow), uint32(255))
	if err := c.write(append(opening, begin...)); err != nil {
		return err
	}
	if err := c.header("AMQP\x00\x01\x00\x00"); err != nil {
		return err
	}
	return c.until(opBegin, func(list fields) error {
		list.skip(2)
		window, _ := list.whole()
		c.window = uint32(window)
		return nil
	})
}

// until reads frames up to one of a kind; the peer's open and flows are looked at on the way.
func (c *connection) until(wanted uint64, look func(fields) error) error {
	for {
		body, err := c.frame()
		if err != nil {
			return err
		}
		if len(body) == 0 {
			continue
		}
		code, list, _, err := open(body)
		if err != nil {
			return err
		}
		switch code {
		case wanted:
			return look(list)
		case opOpen:
			list.skip(2)
			if size, isGiven := list.whole(); isGiven && size < frameMax {
				c.peerMax = uint32(size)
			}
		case opFlow:
			if err := c.outcome(body, nil); err != nil {
				return err
			}
		case opClose, opEnd:
			return fmt.Errorf("the peer closed: %s", failure(list.raw()))
		}
	}
}

func (c *connection) write(data []byte) error {
	_, err := c.socket.Write(data)
	return err
}

func (c *connection) header(expected string) error {
	got := make([]byte, 8)
	if _, err := io.ReadFull(c.in, got); err != nil {
		return err
	}
	if string(got) != expected {
		return fmt.Errorf("protocol header %q expected, %q given", expected, got)
	}
	return nil
}

// frame reads the body of the next frame; it is valid until the next call.
func (c *connection) frame() ([]byte, error) {
	head, err := c.in.Peek(8)
	if err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(head))
	offset := int(head[4]) * 4
	if size < 8 || offset < 8 || offset > size || size > 16<<20 {
		return nil, fmt.Errorf("a frame of %d bytes, data at %d", size, offset)
	}
	if cap(c.buffer) < size {
		c.buffer = make([]byte, size)
	}
	whole := c.buffer[:size]
	if _, err := io.ReadFull(c.in, whole); err != nil {
		return nil, err
	}
	return whole[offset:], nil
}

// fail ends the connection for both its goroutines.
func (c *connection) fail(err error) {
	c.mutex.Lock()
	if c.failure == nil {
		c.failure = err
	}
	c.changed.Broadcast()
	c.mutex.Unlock()
	c.socket.Close()
}

// close says so to the peer, which may answer or not. Frames are read here only where no goroutine does.
func (c *connection) close() {
	c.socket.SetDeadline(time.Now().Add(closingMax))
	err := c.write(performative(opClose))
	for !c.hasReader && err == nil {
		var body []byte
		if body, err = c.frame(); err == nil && len(body) > 0 {
			if code, _, _, _ := open(body); code == opClose {
				break
			}
		}
	}
	if c.hasReader && err == nil {
		c.mutex.Lock()
		for c.failure == nil {
			c.changed.Wait()
		}
		c.mutex.Unlock()
	}
	c.socket.Close()
}
