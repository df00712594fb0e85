package main

import (
	"context"
	"fmt"
	"net/http"
	"strings"

	"cloud.google.com/go/spanner"
)

const (
	created        = "WorkOrderCreated"
	completedEvent = "WorkOrderCompleted"
)

// several is a message that has to be tried more than once.
var several = want{status: processed, attempts: -1, deliveries: 1}

// plain is a message that nothing happens to.
var plain = want{status: processed, attempts: 1, deliveries: 1}

// completed shows the whole life of a work order.
func (s *flowableStory) completed(ctx context.Context) error {
	s.title("1. A work order is handed over, completed and invoiced")
	o, err := s.create(ctx, "WO-1001", plain)
	if err != nil {
		return err
	}
	if err := s.waits(ctx, o, 1); err != nil {
		return err
	}
	m, err := s.complete(ctx, "completes its order", o.id, plain)
	if err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the completion is correlated", is(processed, m)); err != nil {
		return err
	}
	return s.invoiced(ctx, o)
}

func (s *flowableStory) overtaken(ctx context.Context) error {
	s.title("2. The completion overtakes the process: it waits, and is not lost")
	m, err := s.complete(ctx, "overtook its process", "WO-1002", several)
	if err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "Flowable has been asked for who waits", is(retrying, m)); err != nil {
		return err
	}
	s.say("Flowable    nobody waits for WO-1002 yet; Flowable itself keeps no message. The inbox does: %s", m.row.state())
	o, err := s.create(ctx, "WO-1002", plain)
	if err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the completion is tried again", is(processed, m)); err != nil {
		return err
	}
	s.say("Flowable    takes it at attempt %d", m.row.attempts)
	return s.invoiced(ctx, o)
}

func (s *flowableStory) duplicateToken(ctx context.Context) error {
	s.title("3. A repair that is repeated makes tokens too many: seen at the next message, not guessed about, repaired")
	o, err := s.create(ctx, "WO-1003", plain)
	if err != nil {
		return err
	}
	if err := s.waits(ctx, o, 1); err != nil {
		return err
	}
	s.say("the provider says it never got the order; somebody has it handed over once more, and keeps the token that waits:")
	for range 2 {
		body := map[string]any{"cancelActivityIds": []string{"waitForCompletion"}, "startActivityIds": []string{"handOver", "waitForCompletion"}}
		s.say("POST /runtime/process-instances/%s/change-state: cancel waitForCompletion, start handOver and waitForCompletion", o.instance)
		if err := s.flowable.Call(ctx, http.MethodPost, "/runtime/process-instances/"+o.instance+"/change-state", body, nil); err != nil {
			return err
		}
		s.say("  200, and it still waits for its completion, as before. Nothing seems to have happened")
	}
	if err := s.waits(ctx, o, 3); err != nil {
		return err
	}
	m, err := s.complete(ctx, "ambiguous; reopened", o.id, plain)
	if err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "it is parked", is(parked, m)); err != nil {
		return err
	}
	executions, text, err := s.evidence(ctx, m)
	if err != nil {
		return err
	}
	s.say("parked      %s: %s", m.row.state(), text)
	s.expect(m.row.reason == "AMBIGUOUS", "the message for three tokens is %s, want PARKED/AMBIGUOUS", m.row.state())
	s.expect(len(executions) == 3 && strings.Contains(text, "3"), "the row names the executions %v with %q, want the three that wait", executions, text)
	if _, err := s.runInboxctl(ctx, "list", "--status", parked); err != nil {
		return err
	}
	for _, execution := range executions[1:] {
		s.say("POST /runtime/executions/%s/change-state: start end", execution)
		if err := s.flowable.Call(ctx, http.MethodPost, "/runtime/executions/"+execution+"/change-state", map[string]any{"startActivityIds": []string{"end"}}, nil); err != nil {
			return err
		}
	}
	if err := s.waits(ctx, o, 1); err != nil {
		return err
	}
	if _, err := s.runInboxctl(ctx, "reopen", m.row.id, "--reason", "the tokens too many are ended"); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the reopened message is correlated", is(processed, m)); err != nil {
		return err
	}
	return s.invoiced(ctx, o)
}

func (s *flowableStory) restarted(ctx context.Context) error {
	s.title("4. Flowable is killed in the middle: messages wait, nothing is parked, and each order is invoiced once")
	var early, late []*order
	for _, id := range []string{"WO-1004", "WO-1005", "WO-1006"} {
		o, err := s.create(ctx, id, plain)
		if err != nil {
			return err
		}
		if err := s.waits(ctx, o, 1); err != nil {
			return err
		}
		early = append(early, o)
	}
	before, err := s.complete(ctx, "before the kill", early[0].id, plain)
	if err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the first is correlated", is(processed, before)); err != nil {
		return err
	}
	s.flowable.Stop()
	s.say("Flowable is killed, with two orders that wait, and one that is being invoiced or has just been")
	var waiting []*message
	for _, o := range early[1:] {
		m, err := s.complete(ctx, "while Flowable was down", o.id, several)
		if err != nil {
			return err
		}
		waiting = append(waiting, m)
	}
	for _, id := range []string{"WO-1007", "WO-1008"} {
		m, err := s.send(ctx, "while Flowable was down", created, id, several)
		if err != nil {
			return err
		}
		n, err := s.complete(ctx, "while Flowable was down", id, several)
		if err != nil {
			return err
		}
		waiting, late = append(waiting, m, n), append(late, &order{id: id})
	}
	s.orders = append(s.orders, late...)
	tried := func() bool {
		failed := 0
		for _, m := range waiting {
			if m.row != nil && m.row.status == retrying {
				failed++
			}
		}
		return failed == len(waiting)
	}
	if err := s.relayUntil(ctx, "the relay has tried them in vain", tried); err != nil {
		return err
	}
	for _, m := range waiting {
		s.expect(m.row.status == retrying, "message %s is %s while Flowable is down, want RETRYING", m.id, m.row.state())
	}
	s.say("meanwhile   %d messages are RETRYING, none is parked", len(waiting))
	if err := s.flowable.Resume(ctx); err != nil {
		return err
	}
	s.say("Flowable is there again, on its old database")
	if err := s.relayUntil(ctx, "all of them are correlated", is(processed, waiting...)); err != nil {
		return err
	}
	for _, o := range append(early, late...) {
		if err := s.invoiced(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// send publishes an event of a work order and waits until it is stored.
func (s *flowableStory) send(ctx context.Context, what, event, id string, want want) (*message, error) {
	data := fmt.Appendf(nil, `{"workOrderId": %q}`, id)
	if event == completedEvent {
		data = fmt.Appendf(nil, `{"workOrderId": %q, "completedItems": 4812, "completionTimestamp": "2026-05-01T12:00:00Z"}`, id)
	}
	m, err := s.publishData(ctx, what, eventOf(event, id), data, want)
	if err != nil {
		return nil, err
	}
	return m, s.stored(ctx, m)
}

func eventOf(eventType, id string) event {
	return event{eventType: eventType, eventID: strings.ToLower(id + "-" + strings.TrimPrefix(eventType, "WorkOrder")), key: id}
}

// create starts a work order by its message.
func (s *flowableStory) create(ctx context.Context, id string, want want) (*order, error) {
	m, err := s.send(ctx, "starts its process", created, id, want)
	if err != nil {
		return nil, err
	}
	if err := s.relayUntil(ctx, "the process is started", is(processed, m)); err != nil {
		return nil, err
	}
	o := &order{id: id}
	s.orders = append(s.orders, o)
	if err := s.find(ctx, o); err != nil {
		return nil, err
	}
	s.say("Flowable    process instance %s of %s", o.instance, id)
	return o, nil
}

// complete publishes the completion of a work order.
func (s *flowableStory) complete(ctx context.Context, what, id string, want want) (*message, error) {
	return s.send(ctx, what, completedEvent, id, want)
}

// waits waits until so many tokens of an order wait for its completion.
func (s *flowableStory) waits(ctx context.Context, o *order, n int) error {
	return s.until(ctx, fmt.Sprintf("%d tokens of %s wait for its completion", n, o.id), func() (bool, error) {
		got, err := s.count(ctx, "/query/executions", map[string]any{"processInstanceId": o.instance, "messageEventSubscriptionName": completedEvent})
		return got == n, err
	})
}

// invoiced waits until an order's process has ended. What it has come to is compared at the end.
func (s *flowableStory) invoiced(ctx context.Context, o *order) error {
	if err := s.find(ctx, o); err != nil {
		return err
	}
	err := s.until(ctx, "the process of "+o.id+" has ended", func() (bool, error) {
		n, err := s.count(ctx, "/query/historic-process-instances", map[string]any{"processInstanceId": o.instance, "finished": true})
		return n == 1, err
	})
	if err != nil {
		return err
	}
	s.say("invoiced    %s: %s", o.id, strings.Join(s.invoices(o), ", "))
	return nil
}

// evidence is what a parked row says of the executions.
func (s *flowableStory) evidence(ctx context.Context, m *message) (executions []string, text string, err error) {
	row, err := s.db.Single().ReadRow(ctx, "Messages", spanner.Key{m.row.id}, []string{"EngineReference", "LastErrorMessage"})
	if err != nil {
		return nil, "", fmt.Errorf("read the parked message: %w", err)
	}
	var reference, message spanner.NullString
	if err := row.Columns(&reference, &message); err != nil {
		return nil, "", fmt.Errorf("read the parked message: %w", err)
	}
	if executions = strings.Fields(reference.StringVal); len(executions) == 0 {
		return nil, "", fmt.Errorf("the parked message names no execution: %s", message.StringVal)
	}
	return executions, message.StringVal, nil
}
