// Command client speaks DCB over HTTP with what oapi-codegen makes of the server's OpenAPI document.
//
// It is given the URL of a server and the name of a log. It appends an event, reads it back, and appends once more on
// the condition that it is not there. What it was answered it writes as one JSON object.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"

	"headwater/interop/openapi/cne"
	"headwater/interop/openapi/dcb"
)

type told struct {
	Appended dcb.Appended   `json:"appended"`
	Read     []dcb.Envelope `json:"read"`
	Head     string         `json:"head"`
	Status   int            `json:"status"`
	Problem  dcb.Problem    `json:"problem"`
	States   []string       `json:"states"`
}

func main() {
	result, err := run(os.Args[1], os.Args[2])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	if err := json.NewEncoder(os.Stdout).Encode(result); err != nil {
		os.Exit(1)
	}
}

func run(url string, log string) (*told, error) {
	ctx := context.Background()
	client, err := dcb.NewClientWithResponses(url)
	if err != nil {
		return nil, err
	}
	query := dcb.Query{Items: &[]dcb.QueryItem{{Types: &[]string{"CourseDefined"}, Tags: &[]string{"course:c1"}}}}
	data := `{"capacity":10}`
	event := dcb.Event{Type: "CourseDefined", Data: &data, Tags: &[]string{"course:c1"}}
	body := dcb.Append{Events: []dcb.Event{event}, Condition: &dcb.Condition{FailIfEventsMatch: query}}
	appended, err := client.AppendWithResponse(ctx, log, nil, body)
	if err != nil {
		return nil, err
	}
	if appended.JSON200 == nil {
		return nil, fmt.Errorf("append: %s", appended.Body)
	}
	read, err := client.ReadWithResponse(ctx, log, dcb.Read{Query: query}, acceptJSON)
	if err != nil {
		return nil, err
	}
	if read.JSON200 == nil {
		return nil, fmt.Errorf("read: %s", read.Body)
	}
	refused, err := client.AppendWithResponse(ctx, log, nil, body)
	if err != nil {
		return nil, err
	}
	if refused.ApplicationproblemJSON409 == nil {
		return nil, fmt.Errorf("the second append: %d %s", refused.StatusCode(), refused.Body)
	}
	versions, err := notified(ctx, url)
	if err != nil {
		return nil, err
	}
	return &told{
		Appended: *appended.JSON200,
		Read:     *read.JSON200,
		Head:     read.HTTPResponse.Header.Get("Headwater-Head"),
		Status:   refused.StatusCode(),
		Problem:  *refused.ApplicationproblemJSON409,
		States:   versions,
	}, nil
}

// acceptJSON asks for a read as one array: the form without it is a line for each event.
func acceptJSON(_ context.Context, request *http.Request) error {
	request.Header.Set("Accept", "application/json")
	return nil
}

// notified asks the notification API, whose document is another one.
func notified(ctx context.Context, url string) ([]string, error) {
	client, err := cne.NewClientWithResponses(url)
	if err != nil {
		return nil, err
	}
	answer, err := client.ListSubscriptionsV2WithResponse(ctx)
	if err != nil {
		return nil, err
	}
	if answer.JSON200 == nil {
		return nil, fmt.Errorf("subscriptions: %d %s", answer.StatusCode(), answer.Body)
	}
	resources := []string{}
	for _, subscription := range *answer.JSON200 {
		resources = append(resources, subscription.ResourceAddress)
	}
	return resources, nil
}
