package main

import (
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

const dataShownMax = 1024

// typed turns JSON, decoded with numbers as json.Number, into AMQP.
func typed(value any) any {
	switch value := value.(type) {
	case json.Number:
		if whole, err := value.Int64(); err == nil {
			return whole
		}
		real, err := value.Float64()
		check(err)
		return real
	case []any:
		list := make([]any, len(value))
		for at, item := range value {
			list[at] = typed(item)
		}
		return list
	case map[string]any:
		if len(value) == 1 {
			for name, inner := range value {
				if strings.HasPrefix(name, "$") {
					return ofKind(name[1:], inner)
				}
			}
		}
		return stringMap(value)
	}
	return value
}

func ofKind(kind string, inner any) any {
	number := func() int64 { whole, err := inner.(json.Number).Int64(); check(err); return whole }
	switch kind {
	case "symbol":
		return amqp.Symbol(inner.(string))
	case "ubyte":
		return uint8(number())
	case "ushort":
		return uint16(number())
	case "uint":
		return uint32(number())
	case "ulong":
		return uint64(number())
	case "byte":
		return int8(number())
	case "short":
		return int16(number())
	case "int":
		return int32(number())
	case "timestamp":
		return time.UnixMilli(number()).UTC()
	case "float":
		real, err := inner.(json.Number).Float64()
		check(err)
		return float32(real)
	case "binary":
		return bytesOf(inner)
	case "uuid":
		var id amqp.UUID
		raw, err := hex.DecodeString(strings.ReplaceAll(inner.(string), "-", ""))
		check(err)
		copy(id[:], raw)
		return id
	}
	panic("a value of a kind that this client does not know: " + kind)
}

func bytesOf(text any) []byte {
	raw, err := base64.StdEncoding.DecodeString(text.(string))
	check(err)
	return raw
}

func stringMap(value any) map[string]any {
	given, _ := value.(map[string]any)
	if given == nil {
		return nil
	}
	answer := map[string]any{}
	for name, inner := range given {
		answer[name] = typed(inner)
	}
	return answer
}

func symbolMap(value any) map[amqp.Symbol]any {
	answer := map[amqp.Symbol]any{}
	for name, inner := range stringMap(value) {
		answer[amqp.Symbol(name)] = inner
	}
	return answer
}

func annotations(value any) amqp.Annotations {
	given := stringMap(value)
	if given == nil {
		return nil
	}
	answer := amqp.Annotations{}
	for name, inner := range given {
		answer[name] = inner
	}
	return answer
}

// shown turns AMQP into JSON.
func shown(value any) any {
	switch value := value.(type) {
	case amqp.Symbol:
		return map[string]any{"$symbol": string(value)}
	case []amqp.Symbol:
		return shownList(value)
	case []string:
		return shownList(value)
	case []any:
		return shownList(value)
	case []map[any]any:
		return shownList(value)
	case []byte:
		return map[string]any{"$binary": base64.StdEncoding.EncodeToString(value)}
	case time.Time:
		return map[string]any{"$timestamp": value.UnixMilli()}
	case amqp.UUID:
		return map[string]any{"$uuid": value.String()}
	case uint8:
		return map[string]any{"$ubyte": value}
	case uint16:
		return map[string]any{"$ushort": value}
	case uint32:
		return map[string]any{"$uint": value}
	case uint64:
		return map[string]any{"$ulong": value}
	case int8:
		return map[string]any{"$byte": value}
	case int16:
		return map[string]any{"$short": value}
	case int32:
		return map[string]any{"$int": value}
	case float32:
		return map[string]any{"$float": value}
	case float64:
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return map[string]any{"$double": fmt.Sprint(value)}
		}
		return value
	case map[string]any:
		return shownMap(value)
	case map[any]any:
		return shownMap(value)
	case amqp.Annotations:
		return shownMap(value)
	}
	return value
}

func shownList[T any](list []T) []any {
	answer := make([]any, len(list))
	for at, item := range list {
		answer[at] = shown(item)
	}
	return answer
}

func shownMap[K comparable](given map[K]any) map[string]any {
	answer := map[string]any{}
	for name, inner := range given {
		answer[fmt.Sprint(name)] = shown(inner)
	}
	return answer
}

// pattern is the bytes that stand for a body of that size.
func pattern(size int64) []byte {
	data := make([]byte, size)
	for at := range data {
		data[at] = byte(at % 251)
	}
	return data
}

func messageOf(form map[string]any) *amqp.Message {
	message := &amqp.Message{Header: &amqp.MessageHeader{Durable: form["durable"] != false, Priority: 4}}
	if size, has := form["size"]; has {
		whole, err := size.(json.Number).Int64()
		check(err)
		message.Data = [][]byte{pattern(whole)}
	} else if data, has := form["data"]; has {
		message.Data = [][]byte{bytesOf(data)}
	} else if sequence, has := form["sequence"]; has {
		message.Sequence = [][]any{typed(sequence).([]any)}
	} else if value, has := form["value"]; has {
		message.Value = typed(value)
	} else {
		message.Value = amqp.Null{}
	}
	message.ApplicationProperties = stringMap(form["application_properties"])
	message.Annotations = annotations(form["message_annotations"])
	message.DeliveryAnnotations = annotations(form["delivery_annotations"])
	message.Properties = propertiesOf(stringMap(form["properties"]))
	return message
}

func propertiesOf(given map[string]any) *amqp.MessageProperties {
	if given == nil {
		return nil
	}
	text := func(name string) *string {
		if value, has := given[name].(string); has {
			return &value
		}
		return nil
	}
	return &amqp.MessageProperties{
		MessageID: given["message_id"], CorrelationID: given["correlation_id"], To: text("to"),
		Subject: text("subject"), ContentType: text("content_type"), GroupID: text("group_id"),
		ReplyTo: text("reply_to"),
	}
}

func messageShown(message *amqp.Message) map[string]any {
	answer := map[string]any{
		"durable":                message.Header != nil && message.Header.Durable,
		"delivery_annotations":   shownMap(message.DeliveryAnnotations),
		"message_annotations":    shownMap(message.Annotations),
		"application_properties": shownMap(message.ApplicationProperties),
		"properties":             propertiesShown(message.Properties),
	}
	if len(message.Data) > 0 {
		var data []byte
		for _, part := range message.Data {
			data = append(data, part...)
		}
		sum := sha256.Sum256(data)
		answer["size"], answer["sha256"] = len(data), hex.EncodeToString(sum[:])
		if len(data) <= dataShownMax {
			answer["data"] = base64.StdEncoding.EncodeToString(data)
		}
	} else if len(message.Sequence) > 0 {
		var all []any
		for _, part := range message.Sequence {
			all = append(all, shownList(part)...)
		}
		answer["sequence"] = all
	} else {
		answer["value"] = shown(message.Value)
	}
	return answer
}

func propertiesShown(properties *amqp.MessageProperties) map[string]any {
	answer := map[string]any{}
	if properties == nil {
		return answer
	}
	for name, value := range map[string]any{"message_id": properties.MessageID, "correlation_id": properties.CorrelationID} {
		if value != nil {
			answer[name] = shown(value)
		}
	}
	for name, value := range map[string]*string{
		"to": properties.To, "subject": properties.Subject,
		"content_type": properties.ContentType, "group_id": properties.GroupID,
	} {
		if value != nil {
			answer[name] = *value
		}
	}
	return answer
}
