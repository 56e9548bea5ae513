package main

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Performatives and the states that the load needs: AMQP 1.0 part 2, section 2.7, and part 3, section 3.4.
const (
	opOpen        = 0x10
	opBegin       = 0x11
	opAttach      = 0x12
	opFlow        = 0x13
	opTransfer    = 0x14
	opDisposition = 0x15
	opDetach      = 0x16
	opEnd         = 0x17
	opClose       = 0x18
	opError       = 0x1d
	stateAccepted = 0x24
	stateModified = 0x27
	saslMechs     = 0x40
	saslInit      = 0x41
	saslOutcome   = 0x44
)

var errTruncated = errors.New("truncated value")

// Encoding. Lists are always list32, so that one function does.

type symbol string

// described is a performative, a terminus, a state or a filter.
type described struct {
	code uint64
	name symbol
	list []any
	bare any
}

type symbolMap []struct {
	key   symbol
	value any
}

func put(out []byte, value any) []byte {
	switch value := value.(type) {
	case nil:
		return append(out, 0x40)
	case bool:
		if value {
			return append(out, 0x41)
		}
		return append(out, 0x42)
	case uint8:
		return append(out, 0x50, value)
	case uint16:
		return binary.BigEndian.AppendUint16(append(out, 0x60), value)
	case uint32:
		return binary.BigEndian.AppendUint32(append(out, 0x70), value)
	case uint64:
		return binary.BigEndian.AppendUint64(append(out, 0x80), value)
	case string:
		return append(binary.BigEndian.AppendUint32(append(out, 0xb1), uint32(len(value))), value...)
	case symbol:
		return append(binary.BigEndian.AppendUint32(append(out, 0xb3), uint32(len(value))), value...)
	case []byte:
		return append(binary.BigEndian.AppendUint32(append(out, 0xb0), uint32(len(value))), value...)
	case symbolMap:
		var body []byte
		for _, entry := range value {
			body = put(put(body, entry.key), entry.value)
		}
		return putCompound(out, 0xd1, 2*len(value), body)
	case described:
		out = append(out, 0x00)
		switch {
		case value.name != "":
			out = put(out, value.name)
		case value.code < 256:
			out = append(out, 0x53, byte(value.code))
		default:
			out = put(out, value.code)
		}
		if value.bare != nil {
			return put(out, value.bare)
		}
		var body []byte
		for _, field := range value.list {
			body = put(body, field)
		}
		return putCompound(out, 0xd0, len(value.list), body)
	}
	panic(fmt.Sprintf("a value that cannot be encoded: %T", value))
}

func putCompound(out []byte, code byte, count int, body []byte) []byte {
	out = binary.BigEndian.AppendUint32(append(out, code), uint32(len(body)+4))
	out = binary.BigEndian.AppendUint32(out, uint32(count))
	return append(out, body...)
}

func frame(kind byte, channel uint16, body []byte) []byte {
	out := make([]byte, 8, 8+len(body))
	binary.BigEndian.PutUint32(out, uint32(8+len(body)))
	out[4], out[5] = 2, kind
	binary.BigEndian.PutUint16(out[6:], channel)
	return append(out, body...)
}

func performative(code uint64, fields ...any) []byte {
	return frame(0, 0, put(nil, described{code: code, list: fields}))
}

// Decoding: a cursor over the fields of a performative, which skips what nobody asks for.

type fields struct {
	data []byte
	left int
}

// open reads the descriptor of a frame's body and enters its list.
func open(body []byte) (code uint64, list fields, rest []byte, err error) {
	if len(body) < 3 || body[0] != 0 {
		return 0, list, nil, errTruncated
	}
	code, body, err = number(body[1:])
	if err != nil {
		return 0, list, nil, err
	}
	if len(body) == 0 {
		return 0, list, nil, errTruncated
	}
	switch body[0] {
	case 0x45:
		return code, fields{}, body[1:], nil
	case 0xc0:
		if len(body) < 3 || len(body) < 2+int(body[1]) {
			return 0, list, nil, errTruncated
		}
		end := 2 + int(body[1])
		return code, fields{body[3:end], int(body[2])}, body[end:], nil
	case 0xd0:
		if len(body) < 9 {
			return 0, list, nil, errTruncated
		}
		end := 5 + int(binary.BigEndian.Uint32(body[1:]))
		if len(body) < end {
			return 0, list, nil, errTruncated
		}
		return code, fields{body[9:end], int(binary.BigEndian.Uint32(body[5:]))}, body[end:], nil
	}
	return 0, list, nil, fmt.Errorf("not a list: %#x", body[0])
}

// whole is the next field, if it is a number.
func (list *fields) whole() (value uint64, isGiven bool) {
	if list.left == 0 {
		return 0, false
	}
	list.left--
	if list.data[0] == 0x40 {
		list.data = list.data[1:]
		return 0, false
	}
	value, rest, err := number(list.data)
	if err != nil {
		list.skipValue()
		return 0, false
	}
	list.data = rest
	return value, true
}

// truth is the next field as a boolean; false where it is absent.
func (list *fields) truth() bool {
	if list.left == 0 {
		return false
	}
	list.left--
	code := list.data[0]
	if code == 0x56 {
		value := list.data[1] == 1
		list.data = list.data[2:]
		return value
	}
	list.data = list.data[1:]
	return code == 0x41
}

// raw is the next field, undecoded.
func (list *fields) raw() []byte {
	if list.left == 0 {
		return nil
	}
	list.left--
	before := list.data
	list.skipValue()
	return before[:len(before)-len(list.data)]
}

func (list *fields) skip(count int) {
	for ; count > 0 && list.left > 0; count-- {
		list.left--
		list.skipValue()
	}
}

func (list *fields) skipValue() {
	size := length(list.data)
	if size < 0 || size > len(list.data) {
		panic(errTruncated)
	}
	list.data = list.data[size:]
}

// length of an encoded value, or -1.
func length(data []byte) int {
	if len(data) == 0 {
		return -1
	}
	if data[0] == 0 {
		first := length(data[1:])
		if first < 0 || 1+first > len(data) {
			return -1
		}
		second := length(data[1+first:])
		if second < 0 {
			return -1
		}
		return 1 + first + second
	}
	switch data[0] >> 4 {
	case 0x4:
		return 1
	case 0x5:
		return 2
	case 0x6:
		return 3
	case 0x7:
		return 5
	case 0x8:
		return 9
	case 0x9:
		return 17
	case 0xa, 0xc, 0xe:
		if len(data) < 2 {
			return -1
		}
		return 2 + int(data[1])
	}
	if len(data) < 5 {
		return -1
	}
	return 5 + int(binary.BigEndian.Uint32(data[1:]))
}

// number reads an unsigned integer of any width.
func number(data []byte) (uint64, []byte, error) {
	size := length(data)
	if size < 0 || size > len(data) {
		return 0, nil, errTruncated
	}
	switch data[0] {
	case 0x43, 0x44:
		return 0, data[1:], nil
	case 0x50, 0x52, 0x53:
		return uint64(data[1]), data[2:], nil
	case 0x60:
		return uint64(binary.BigEndian.Uint16(data[1:])), data[3:], nil
	case 0x70:
		return uint64(binary.BigEndian.Uint32(data[1:])), data[5:], nil
	case 0x80:
		return binary.BigEndian.Uint64(data[1:]), data[9:], nil
	}
	return 0, nil, fmt.Errorf("not a number: %#x", data[0])
}

// text is a string or symbol, as far as data is one.
func text(data []byte) string {
	switch {
	case len(data) > 2 && (data[0] == 0xa1 || data[0] == 0xa3):
		return string(data[2:])
	case len(data) > 5 && (data[0] == 0xb1 || data[0] == 0xb3):
		return string(data[5:])
	}
	return ""
}

// failure is what an error field says.
func failure(data []byte) string {
	if len(data) == 0 || data[0] != 0 {
		return "no reason given"
	}
	_, list, _, err := open(data)
	if err != nil {
		return err.Error()
	}
	return text(list.raw()) + " " + text(list.raw())
}
