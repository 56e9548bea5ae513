package main

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/Azure/go-amqp"
)

const (
	creditDefault    = 100
	quietBeforeDrain = time.Second
)

func send(ctx context.Context, conn *amqp.Conn, asked *request) {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		fail(err)
		return
	}
	mode := amqp.SenderSettleModeUnsettled
	if asked.Settled {
		mode = amqp.SenderSettleModeSettled
	}
	options := &amqp.SenderOptions{Properties: stringMap(anyMap(asked.LinkProperties)), SettlementMode: &mode, Name: asked.LinkName}
	sender, err := session.NewSender(ctx, asked.Address, options)
	if err != nil {
		fail(err)
		return
	}
	say("attached", map[string]any{
		"is_refused": false, "properties": shownMap(sender.Properties()), "max_message_size": sender.MaxMessageSize(),
	})
	if sendAll(ctx, sender, asked) {
		hold(ctx, asked, conn, nil)
	}
}

func sendAll(ctx context.Context, sender *amqp.Sender, asked *request) bool {
	forms := asked.Messages
	for len(asked.Messages) == 0 && len(forms) < max(asked.Count, 1) {
		forms = append(forms, asked.Message)
	}
	outcomes := map[string]any{}
	var receipts []amqp.SendReceipt
	for _, form := range forms {
		if asked.Settled {
			if err := sender.Send(ctx, messageOf(form), nil); err != nil {
				fail(err)
				return false
			}
			count(outcomes, "settled")
			continue
		}
		receipt, err := sender.SendWithReceipt(ctx, messageOf(form), nil)
		if err != nil {
			fail(err)
			return false
		}
		receipts = append(receipts, receipt)
	}
	for index := range receipts {
		state, err := receipts[index].Wait(ctx)
		if err != nil {
			fail(err)
			return false
		}
		tellOutcome(outcomes, index, state)
	}
	say("sent", outcomes)
	return true
}

func tellOutcome(outcomes map[string]any, index int, state amqp.DeliveryState) {
	line := map[string]any{"index": index, "condition": nil, "description": nil}
	switch state := state.(type) {
	case *amqp.StateAccepted:
		count(outcomes, "accepted")
		return
	case *amqp.StateRejected:
		line["outcome"] = "rejected"
		if state.Error != nil {
			line["condition"], line["description"] = string(state.Error.Condition), state.Error.Description
		}
	case *amqp.StateReleased:
		line["outcome"] = "released"
	case *amqp.StateModified:
		line["outcome"] = "modified"
	default:
		line["outcome"] = "none"
	}
	count(outcomes, line["outcome"].(string))
	say("outcome", line)
}

func count(outcomes map[string]any, outcome string) {
	before, _ := outcomes[outcome].(int)
	outcomes[outcome] = before + 1
}

func receive(ctx context.Context, conn *amqp.Conn, asked *request) {
	session, err := conn.NewSession(ctx, nil)
	if err != nil {
		fail(err)
		return
	}
	receiver, err := session.NewReceiver(ctx, asked.Address, receiverOptions(asked))
	if err != nil {
		fail(err)
		return
	}
	filters := map[string]any{}
	for _, each := range asked.Filters {
		if value := receiver.LinkSourceFilterValue(each.Name); value != nil {
			filters[each.Name] = shown(value)
		}
	}
	say("attached", map[string]any{"is_refused": false, "properties": shownMap(receiver.Properties()), "filters": filters})
	if asked.Drain {
		drain(ctx, receiver, asked)
	} else {
		receiveAll(ctx, conn, receiver, asked)
	}
}

func receiverOptions(asked *request) *amqp.ReceiverOptions {
	options := &amqp.ReceiverOptions{
		Name: asked.LinkName, Properties: stringMap(anyMap(asked.LinkProperties)), Credit: creditOf(asked),
	}
	mode := amqp.SenderSettleModeUnsettled
	if asked.Settled {
		mode = amqp.SenderSettleModeSettled
	}
	options.RequestedSenderSettleMode = &mode
	if asked.RcvSecond {
		second := amqp.ReceiverSettleModeSecond
		options.SettlementMode = &second
	}
	if asked.DurableTerminus {
		options.SourceDurability, options.SourceExpiryPolicy = 2, "never"
	}
	if asked.Drain {
		options.Credit = -1
	}
	for _, each := range asked.Filters {
		options.Filters = append(options.Filters, filterOf(each))
	}
	return options
}

// filterOf makes the filter as far as go-amqp can: it is always described, and a symbol as the descriptor is its name.
func filterOf(each filter) amqp.LinkFilter {
	value := typed(each.Value)
	if each.Map != nil {
		value = symbolMap(anyMap(each.Map))
	}
	if number, is := each.Descriptor.(json.Number); is {
		code, err := number.Int64()
		check(err)
		return amqp.NewLinkFilter(each.Name, uint64(code), value)
	}
	return amqp.NewLinkFilter(each.Name, 0, value)
}

func creditOf(asked *request) int32 {
	if asked.Credit == nil {
		return creditDefault
	}
	return *asked.Credit
}

// drain gives credit, takes what comes until nothing does, then drains the rest of the credit. The flow with which
// go-amqp drains says link-credit 0, so what it had given before must have arrived at the peer by then.
func drain(ctx context.Context, receiver *amqp.Receiver, asked *request) {
	if err := receiver.IssueCredit(uint32(creditOf(asked))); err != nil {
		fail(err)
		return
	}
	received := 0
	take := func(message *amqp.Message) {
		received++
		tell(asked, message)
		settle(ctx, receiver, message, asked)
	}
	for {
		quiet, cancel := context.WithTimeout(ctx, quietBeforeDrain)
		message, err := receiver.Receive(quiet, nil)
		cancel()
		if errors.Is(err, context.DeadlineExceeded) {
			break
		}
		if err != nil {
			fail(err)
			return
		}
		take(message)
	}
	if err := receiver.DrainCredit(ctx, nil); err != nil {
		fail(err)
		return
	}
	for message := receiver.Prefetched(); message != nil; message = receiver.Prefetched() {
		take(message)
	}
	say("drained", map[string]any{"received": received})
}

func receiveAll(ctx context.Context, conn *amqp.Conn, receiver *amqp.Receiver, asked *request) {
	for received := 0; received < max(asked.Count, 1); received++ {
		message, err := receiver.Receive(ctx, nil)
		if err != nil {
			fail(err)
			return
		}
		tell(asked, message)
		if err := settle(ctx, receiver, message, asked); err != nil {
			fail(err)
			return
		}
	}
	say("received", map[string]any{"count": max(asked.Count, 1)})
	if asked.HoldS > 0 {
		hold(ctx, asked, conn, receiver)
	}
}

func tell(asked *request, message *amqp.Message) {
	if !asked.Quiet {
		say("message", messageShown(message))
	}
}

func settle(ctx context.Context, receiver *amqp.Receiver, message *amqp.Message, asked *request) error {
	var err error
	switch asked.Outcome {
	case "none":
	case "release":
		err = receiver.ReleaseMessage(ctx, message)
	case "modify":
		err = receiver.ModifyMessage(ctx, message, &amqp.ModifyMessageOptions{DeliveryFailed: true, UndeliverableHere: true})
	case "reject":
		err = receiver.RejectMessage(ctx, message, &amqp.Error{Condition: "interop:rejected", Description: "as asked"})
	default:
		err = receiver.AcceptMessage(ctx, message)
	}
	if err == nil && asked.RcvSecond {
		say("settled_by_peer", nil)
	}
	if errors.Is(err, context.DeadlineExceeded) {
		return context.DeadlineExceeded
	}
	return err
}

func anyMap(given map[string]any) any {
	if given == nil {
		return nil
	}
	return given
}
