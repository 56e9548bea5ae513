// Command lend lends copies of books: it reads, decides and appends, and it follows.
//
//	lend URL LOG lend COPY MEMBER
//	lend URL LOG follow COUNT
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strconv"
	"strings"

	"headwater/interop/openapi/dcb"
)

type lent struct {
	Copy   string `json:"copy"`
	Member string `json:"member"`
}

// boundary is what a decision about a copy depends on.
func boundary(copy string) dcb.Query {
	return dcb.Query{Items: &[]dcb.QueryItem{{Types: &[]string{"CopyLent", "CopyReturned"}, Tags: &[]string{"copy:" + copy}}}}
}

// lend reads, decides and appends, and begins again when somebody was faster. It answers the number of the event.
func lend(ctx context.Context, client *dcb.ClientWithResponses, log, copy, member string) (int64, error) {
	for {
		read, err := client.ReadWithResponse(ctx, log, dcb.Read{Query: boundary(copy)}, acceptJSON)
		if err != nil {
			return 0, err
		}
		if read.JSON200 == nil {
			return 0, fmt.Errorf("read: %s", read.Body)
		}
		holder := ""
		for _, envelope := range *read.JSON200 {
			holder = ""
			if envelope.Event.Type == "CopyLent" {
				var event lent
				if err := json.Unmarshal([]byte(*envelope.Event.Data), &event); err != nil {
					return 0, err
				}
				holder = event.Member
			}
		}
		if holder != "" {
			return 0, fmt.Errorf("refused: copy %s is lent to %s", copy, holder)
		}
		head, err := strconv.ParseInt(read.HTTPResponse.Header.Get("Headwater-Head"), 10, 64)
		if err != nil {
			return 0, err
		}
		bytes, err := json.Marshal(lent{copy, member})
		if err != nil {
			return 0, err
		}
		data := string(bytes)
		event := dcb.Event{Type: "CopyLent", Data: &data, Tags: &[]string{"copy:" + copy, "member:" + member}}
		condition := dcb.Condition{FailIfEventsMatch: boundary(copy), After: &head}
		body := dcb.Append{Events: []dcb.Event{event}, Condition: &condition}
		appended, err := client.AppendWithResponse(ctx, log, nil, body)
		if err != nil {
			return 0, err
		}
		if appended.JSON200 != nil {
			return appended.JSON200.SequenceNumber, nil
		}
		if appended.StatusCode() != http.StatusConflict {
			return 0, fmt.Errorf("append: %s", appended.Body)
		}
	}
}

// follow writes so many events, from the first on, and waits for those that are to come.
func follow(ctx context.Context, client *dcb.ClientWithResponses, log string, count int) error {
	after := int64(0)
	answer, err := client.Subscribe(ctx, log, &dcb.SubscribeParams{Query: "all", After: &after})
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("subscribe: %s", answer.Status)
	}
	lines := bufio.NewScanner(answer.Body)
	lines.Buffer(nil, 96<<20) // a message is one line, as long as an event may be
	for count > 0 && lines.Scan() {
		data, isData := strings.CutPrefix(lines.Text(), "data: ")
		if !isData {
			continue
		}
		var envelope dcb.Envelope
		if err := json.Unmarshal([]byte(data), &envelope); err != nil {
			return err
		}
		fmt.Println(envelope.SequenceNumber, envelope.Event.Type)
		count--
	}
	if count > 0 && lines.Err() == nil {
		return errors.New("the subscription ended") // a proxy may end it as if it were whole
	}
	return lines.Err()
}

// acceptJSON asks for a read as one array: the form without it is a line for each event.
func acceptJSON(_ context.Context, request *http.Request) error {
	request.Header.Set("Accept", "application/json")
	return nil
}

func run(arguments []string) error {
	ctx := context.Background()
	client, err := dcb.NewClientWithResponses(arguments[0])
	if err != nil {
		return err
	}
	switch log, what := arguments[1], arguments[2]; what {
	case "lend":
		number, err := lend(ctx, client, log, arguments[3], arguments[4])
		if err == nil {
			fmt.Println("event", number)
		}
		return err
	case "follow":
		count, err := strconv.Atoi(arguments[3])
		return errors.Join(err, follow(ctx, client, log, count))
	default:
		return fmt.Errorf("lend or follow is expected, %s given", what)
	}
}

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}
