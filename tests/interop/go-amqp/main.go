// One operation with go-amqp, by the contract in ../README.md: `go-amqp OPERATION JSON`.
package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"time"

	"github.com/Azure/go-amqp"
)

// request is what all operations take; the rest is taken from the raw map by whoever needs it.
type request struct {
	URL             string           `json:"url"`
	User            *string          `json:"user"`
	Password        string           `json:"password"`
	CA              string           `json:"ca"`
	IdleTimeoutMS   int64            `json:"idle_timeout_ms"`
	MaxFrameSize    uint32           `json:"max_frame_size"`
	ContainerID     string           `json:"container_id"`
	TimeoutS        float64          `json:"timeout_s"`
	HoldS           float64          `json:"hold_s"`
	Address         string           `json:"address"`
	LinkName        string           `json:"link_name"`
	LinkProperties  map[string]any   `json:"link_properties"`
	Settled         bool             `json:"settled"`
	RcvSecond       bool             `json:"rcv_second"`
	DurableTerminus bool             `json:"durable_terminus"`
	Count           int              `json:"count"`
	Credit          *int32           `json:"credit"`
	Drain           bool             `json:"drain"`
	Quiet           bool             `json:"quiet"`
	Outcome         string           `json:"outcome"`
	Message         map[string]any   `json:"message"`
	Messages        []map[string]any `json:"messages"`
	Filters         []filter         `json:"filters"`
}

type filter struct {
	Name       string         `json:"name"`
	Descriptor any            `json:"descriptor"`
	Value      any            `json:"value"`
	Map        map[string]any `json:"map"`
}

func check(err error) {
	if err != nil {
		panic(err)
	}
}

func say(event string, more map[string]any) {
	line := map[string]any{"event": event}
	for name, value := range more {
		line[name] = value
	}
	text, err := json.Marshal(line)
	check(err)
	os.Stdout.Write(append(text, '\n'))
}

func main() {
	var asked request
	decoder := json.NewDecoder(bytes.NewReader([]byte(os.Args[2])))
	decoder.UseNumber()
	check(decoder.Decode(&asked))
	if asked.TimeoutS == 0 {
		asked.TimeoutS = 20
	}
	ctx, cancel := context.WithTimeout(context.Background(), seconds(asked.TimeoutS))
	defer cancel()
	run(ctx, os.Args[1], &asked)
	say("done", nil)
}

func seconds(count float64) time.Duration { return time.Duration(count * float64(time.Second)) }

func run(ctx context.Context, operation string, asked *request) {
	conn, err := amqp.Dial(ctx, asked.URL, connOptions(asked))
	if err != nil {
		fail(err)
		return
	}
	defer conn.Close()
	say("opened", map[string]any{"properties": shownMap(conn.Properties())})
	switch operation {
	case "connect":
		hold(ctx, asked, conn, nil)
	case "send":
		send(ctx, conn, asked)
	case "receive":
		receive(ctx, conn, asked)
	default:
		panic("no such operation: " + operation)
	}
}

func connOptions(asked *request) *amqp.ConnOptions {
	options := &amqp.ConnOptions{SASLType: amqp.SASLTypeAnonymous()}
	if asked.User != nil {
		options.SASLType = amqp.SASLTypePlain(*asked.User, asked.Password)
	}
	if asked.IdleTimeoutMS != 0 {
		options.IdleTimeout = time.Duration(asked.IdleTimeoutMS) * time.Millisecond
	}
	options.MaxFrameSize, options.ContainerID = asked.MaxFrameSize, asked.ContainerID
	if asked.CA != "" {
		pem, err := os.ReadFile(asked.CA)
		check(err)
		pool := x509.NewCertPool()
		if !pool.AppendCertsFromPEM(pem) {
			panic("no certificate in " + asked.CA)
		}
		options.TLSConfig = &tls.Config{RootCAs: pool}
	}
	return options
}

// hold waits as long as asked, unless the connection or the link ends before.
func hold(ctx context.Context, asked *request, conn *amqp.Conn, receiver *amqp.Receiver) {
	holding, cancel := context.WithTimeout(ctx, seconds(asked.HoldS))
	defer cancel()
	if receiver != nil {
		for {
			if _, err := receiver.Receive(holding, nil); err != nil {
				if holding.Err() == nil {
					fail(err)
				}
				return
			}
		}
	}
	select {
	case <-holding.Done():
	case <-conn.Done():
		fail(conn.Err())
	}
}

// fail tells an error, the peer's where there is one.
func fail(err error) {
	scope, remote := "transport", (*amqp.Error)(nil)
	var connError *amqp.ConnError
	var sessionError *amqp.SessionError
	var linkError *amqp.LinkError
	var direct *amqp.Error
	var tlsError *tls.CertificateVerificationError
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		say("timeout", nil)
		return
	case errors.As(err, &linkError):
		scope, remote = "link", linkError.RemoteErr
	case errors.As(err, &sessionError):
		scope, remote = "session", sessionError.RemoteErr
	case errors.As(err, &connError) && connError.RemoteErr != nil:
		scope, remote = "connection", connError.RemoteErr
	case errors.As(err, &direct):
		scope, remote = "link", direct
	case errors.As(err, &tlsError):
		scope = "tls"
	case strings.Contains(err.Error(), "SASL"):
		scope = "sasl"
	}
	line := map[string]any{"scope": scope, "condition": nil, "description": err.Error(), "info": map[string]any{}}
	if remote != nil {
		line["condition"], line["description"] = string(remote.Condition), remote.Description
		line["info"] = shownMap(remote.Info)
	}
	say("error", line)
}
