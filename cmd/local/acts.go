package main

import (
	"context"
	"fmt"
	"strings"
	"time"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
)

// Statuses and reasons are written here as an operator sees them, not taken from package inbox: a name that changed there
// would be a difference here.
const (
	processed = "PROCESSED"
	parked    = "PARKED"
	retrying  = "RETRYING"
)

// once is a message that nothing happens to.
var once = want{status: processed, attempts: 1, deliveries: 1, engineSaw: "200"}

// tell plays the acts, one after another: each leaves nothing open but what a later one repairs.
func (s *story) tell(ctx context.Context) error {
	var ambiguous, cancelled, givenUp *message
	for _, act := range []func(context.Context) error{
		func(ctx context.Context) (err error) { givenUp, err = s.givenUp(ctx); return err },
		s.keyOrder,
		s.overtaken,
		s.redelivered,
		s.contradicted,
		func(ctx context.Context) (err error) { ambiguous, err = s.ambiguous(ctx); return err },
		func(ctx context.Context) (err error) { cancelled, err = s.nobodyWaits(ctx); return err },
		s.outage,
		s.firewall,
		s.unreadable,
		func(ctx context.Context) error { return s.reopen(ctx, ambiguous) },
		func(ctx context.Context) error { return s.update(ctx, cancelled) },
		s.large,
		s.referred,
		func(ctx context.Context) error { return s.deadLetter(ctx, givenUp) },
	} {
		if err := act(ctx); err != nil {
			return err
		}
	}
	return nil
}

func (s *story) keyOrder(ctx context.Context) error {
	s.title("1. Messages of one order go to the engine one after another, in the order of publishing")
	steps := []string{"PaymentReceived", "ItemsPicked", "ParcelShipped"}
	var all []*message
	for _, key := range []string{"order-1001", "order-1002"} {
		s.orders.Start(key, steps...)
	}
	for i, step := range steps {
		for _, key := range []string{"order-1001", "order-1002"} {
			m, err := s.publish(ctx, step, event{step, fmt.Sprintf("%s-%d", key, i+1), key, 90}, once)
			if err != nil {
				return err
			}
			all = append(all, m)
		}
	}
	if err := s.stored(ctx, all...); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the engine has them", is(processed, all...)); err != nil {
		return err
	}
	for _, key := range []string{"order-1001", "order-1002"} {
		s.say("engine      %s got %v", key, s.inOrder(s.orders, key, steps...))
	}
	return nil
}

func (s *story) overtaken(ctx context.Context) error {
	s.title("2. A message that overtook its process heals by itself")
	m, err := s.publish(ctx, "overtook its process", event{"PaymentReceived", "order-1003-1", "order-1003", 40},
		want{status: processed, attempts: -1, deliveries: 1, engineSaw: "404( 404)* 200"})
	if err != nil {
		return err
	}
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the engine has refused it", is(retrying, m)); err != nil {
		return err
	}
	s.say("engine      nobody waits for it yet (404): it is RETRYING, within its route's patience")
	s.say("the process is started: %s", s.orders.Start("order-1003", "PaymentReceived"))
	if err := s.relayUntil(ctx, "it is tried again", is(processed, m)); err != nil {
		return err
	}
	s.inOrder(s.orders, "order-1003", "PaymentReceived")
	s.say("engine      takes it at attempt %d", m.row.attempts)
	return nil
}

func (s *story) redelivered(ctx context.Context) error {
	s.title("3. Delivered three times, acted upon once")
	s.orders.Start("order-1004", "PaymentReceived")
	s.door.loseAnswerTo("order-1004-1")
	e := event{"PaymentReceived", "order-1004-1", "order-1004", 70}
	m, err := s.publish(ctx, "delivered three times", e, want{status: processed, attempts: 1, deliveries: 3, engineSaw: "200"})
	if err != nil {
		return err
	}
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	deliveries := func(n int64) func() (bool, error) {
		return func() (bool, error) {
			err := s.look(ctx)
			return m.row != nil && m.row.deliveries >= n && s.door.lost() == 1, err
		}
	}
	s.say("the receive function's answer is lost on its way: Pub/Sub does not know, and delivers again")
	if err := s.until(ctx, "Pub/Sub has delivered it again", deliveries(2)); err != nil {
		return err
	}
	s.say("the publisher is not sure either, and publishes the event again")
	if _, err := s.publish(ctx, "published again", e, want{norow: true}); err != nil {
		return err
	}
	if err := s.until(ctx, "the second message is known", deliveries(3)); err != nil {
		return err
	}
	s.say("stored      still one row, with %d deliveries", m.row.deliveries)
	if err := s.relayUntil(ctx, "the engine has it", is(processed, m)); err != nil {
		return err
	}
	s.say("engine      got %v", s.inOrder(s.orders, "order-1004", "PaymentReceived"))
	return nil
}

func (s *story) contradicted(ctx context.Context) error {
	s.title("4. Two tranches under one event id: the second is neither lost nor taken for the first")
	s.orders.Start("order-1005", "PaymentReceived", "PaymentReceived")
	first, err := s.publish(ctx, "first tranche", event{"PaymentReceived", "order-1005-1", "order-1005", 100}, once)
	if err != nil {
		return err
	}
	if err := s.stored(ctx, first); err != nil {
		return err
	}
	second, err := s.publish(ctx, "second tranche, same event id", event{"PaymentReceived", "order-1005-1", "order-1005", 250},
		want{status: parked, reason: "DEDUPE_CONFLICT", deliveries: 1, conflictsWith: first})
	if err != nil {
		return err
	}
	if err := s.stored(ctx, second); err != nil {
		return err
	}
	s.say("            it is kept beside the row that it contradicts (%s), for a person to look at", second.row.conflictsWith)
	if err := s.relayUntil(ctx, "the first has its effect", is(processed, first)); err != nil {
		return err
	}
	s.inOrder(s.orders, "order-1005", "PaymentReceived")
	return nil
}

func (s *story) ambiguous(ctx context.Context) (*message, error) {
	s.title("5. Two processes wait where one should: nobody guesses, the message is parked at once")
	s.orders.StartTwice("order-1006", "PaymentReceived")
	m, err := s.publish(ctx, "ambiguous; reopened", event{"PaymentReceived", "order-1006-1", "order-1006", 30},
		want{status: processed, attempts: 1, deliveries: 1, engineSaw: "409 200"})
	if err != nil {
		return nil, err
	}
	if err := s.stored(ctx, m); err != nil {
		return nil, err
	}
	if err := s.relayUntil(ctx, "it is parked", is(parked, m)); err != nil {
		return nil, err
	}
	s.say("parked      %s", m.row.state())
	s.expect(m.row.reason == "AMBIGUOUS", "the ambiguous message is %s, want PARKED/AMBIGUOUS", m.row.state())
	s.inOrder(s.orders, "order-1006")
	return m, nil
}

func (s *story) nobodyWaits(ctx context.Context) (*message, error) {
	s.title("6. Nobody ever waits for it: patience ends, and the message is parked")
	m, err := s.publish(ctx, "nobody waited; repaired by hand", event{"CancellationRequested", "order-1007-1", "order-1007", 0},
		want{status: processed, attempts: 1, deliveries: 1, engineSaw: "404( 404)+ 200"})
	if err != nil {
		return nil, err
	}
	if err := s.stored(ctx, m); err != nil {
		return nil, err
	}
	if err := s.relayUntil(ctx, "its patience has ended", is(parked, m)); err != nil {
		return nil, err
	}
	s.say("parked      %s after %d attempts", m.row.state(), m.row.attempts)
	s.expect(m.row.reason == "NO_WAITING_INSTANCE", "the message that nobody waits for is %s, want PARKED/NO_WAITING_INSTANCE", m.row.state())
	return m, nil
}

func (s *story) outage(ctx context.Context) error {
	s.title("7. An engine is down: nothing is parked, others go on, and all is delivered afterwards")
	s.billing.SetOutage(demoengine.Unavailable)
	s.say("billing     answers 503")
	var invoices []*message
	for i, key := range []string{"order-1008", "order-1009", "order-1010"} {
		s.billing.Start(key, "InvoicePaid")
		m, err := s.publish(ctx, "during the outage", event{"InvoicePaid", key + "-1", key, 10 * (i + 1)},
			want{status: processed, attempts: -1, deliveries: 1, engineSaw: "503( 503)* 200"})
		if err != nil {
			return err
		}
		invoices = append(invoices, m)
	}
	s.orders.Start("order-1011", "PaymentReceived")
	other, err := s.publish(ctx, "to another engine meanwhile", event{"PaymentReceived", "order-1011-1", "order-1011", 20}, once)
	if err != nil {
		return err
	}
	if err := s.stored(ctx, append(invoices, other)...); err != nil {
		return err
	}
	err = s.relayUntil(ctx, "each invoice was refused, the engine was probed again, and the order went on", func() bool {
		return is(retrying, invoices...)() && is(processed, other)() && len(s.billing.History()) > len(invoices)
	})
	if err != nil {
		return err
	}
	for _, m := range invoices {
		s.expect(m.row.status == retrying, "message %s is %s in the outage, want RETRYING", m.id, m.row.state())
	}
	s.say("meanwhile   the invoices are RETRYING, none is parked; %s went to its own engine", other.key)
	s.billing.SetOutage(demoengine.Healthy)
	s.say("billing     is there again")
	if err := s.relayUntil(ctx, "the invoices are delivered", is(processed, invoices...)); err != nil {
		return err
	}
	for _, m := range invoices {
		s.inOrder(s.billing, m.key, "InvoicePaid")
	}
	return nil
}

func (s *story) firewall(ctx context.Context) error {
	s.title("8. A firewall refuses one message (403), each time: the others go on, nobody blames the credentials, and it is parked in the end")
	s.orders.wall.refuse("UNION SELECT")
	s.orders.Start("order-1015", "NoteAdded")
	data := []byte(`{"orderId": "order-1015", "note": "UNION SELECT is what the customer wrote"}`)
	refused, err := s.publishData(ctx, "refused by a firewall", event{"NoteAdded", "order-1015-1", "order-1015", 0}, data,
		want{status: parked, reason: "POISONED", attempts: -1, deliveries: 1}) // the engine has never seen it
	if err != nil {
		return err
	}
	if err := s.stored(ctx, refused); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "it is refused", is(retrying, refused)); err != nil {
		return err
	}
	s.say("firewall    answers %s: it is RETRYING", refused.row.code)
	// Each time that it is refused, another one has been accepted meanwhile: that makes it the message's own failure.
	var others []*message
	for !is(parked, refused)() {
		key := fmt.Sprintf("order-11%02d", len(others))
		s.orders.Start(key, "PaymentReceived")
		ok, err := s.publish(ctx, "beside the refused one", event{"PaymentReceived", key + "-1", key, 20}, once)
		if err != nil {
			return err
		}
		others = append(others, ok)
		if err := s.stored(ctx, ok); err != nil {
			return err
		}
		if err := s.relayUntil(ctx, "the other one is processed", is(processed, ok)); err != nil {
			return err
		}
		before := s.orders.wall.refusals()
		err = s.relayUntil(ctx, "the refused one is tried again", func() bool { return s.orders.wall.refusals() > before || is(parked, refused)() })
		if err != nil {
			return err
		}
		if len(others) > 20 {
			return fmt.Errorf("a message that is refused beside %d others is still %s", len(others), refused.row.state())
		}
	}
	s.say("parked      %s after %d attempts; meanwhile %d others went to the same engine with the same credentials", refused.row.state(),
		refused.row.attempts, len(others))
	for _, m := range others {
		s.inOrder(s.orders, m.key, "PaymentReceived")
	}
	s.inOrder(s.orders, "order-1015")
	var paused int64
	err = s.db.Single().Query(ctx, spanner.NewStatement("SELECT COUNT(*) FROM Engines WHERE OpenUntil IS NOT NULL")).Do(func(r *spanner.Row) error {
		return r.Columns(&paused)
	})
	s.expect(paused == 0, "%d engines are paused, want none for one message's refusal", paused)
	return err
}

func (s *story) unreadable(ctx context.Context) error {
	s.title("9. What cannot be read, or belongs to no route, is kept too")
	m := &message{what: "unreadable: an attribute is a number", id: "unreadable-1", want: want{status: parked, reason: "UNREADABLE", deliveries: 1}}
	s.messages = append(s.messages, m)
	err := s.push(ctx, map[string]any{
		"subscription": s.stack.Subscription,
		"message": map[string]any{"messageId": m.id, "publishTime": time.Now().UTC().Format(time.RFC3339Nano), "data": "e30=",
			"attributes": map[string]any{"eventType": "PaymentReceived", "eventId": 12}},
	})
	if err != nil {
		return err
	}
	s.say("pushed      a message whose attribute eventId is the number 12; answered 204, because it is kept")
	if err := s.stored(ctx, m); err != nil {
		return err
	}
	n, err := s.publish(ctx, "no route", event{"ParcelWeighed", "order-1001-9", "order-1001", 0}, want{status: parked, reason: "NO_ROUTE", deliveries: 1})
	if err != nil {
		return err
	}
	if err := s.stored(ctx, n); err != nil {
		return err
	}
	n.key = "" // without a route nobody says what the key is
	return nil
}

func (s *story) reopen(ctx context.Context, m *message) error {
	s.title("10. The ambiguous message is repaired with inboxctl")
	listed, err := s.runInboxctl(ctx, "list", "--status", parked)
	if err != nil {
		return err
	}
	for _, m := range s.messages {
		if m.row != nil && m.row.status == parked {
			s.expect(strings.Contains(listed, m.row.id), "inboxctl list does not name the parked message %s (%s)", m.id, m.row.id)
		}
	}
	s.orders.RemoveOne("order-1006")
	s.say("the second process of order-1006 is removed")
	if _, err := s.runInboxctl(ctx, "reopen", m.row.id, "--reason", "the duplicate process is removed"); err != nil {
		return err
	}
	if err := s.relayUntil(ctx, "the reopened message is delivered", is(processed, m)); err != nil {
		return err
	}
	s.say("engine      got %v", s.inOrder(s.orders, "order-1006", "PaymentReceived"))
	return nil
}

func (s *story) update(ctx context.Context, m *message) error {
	s.title("11. The other one is repaired by hand, with one statement")
	s.orders.Start("order-1007", "CancellationRequested")
	s.say("a process that waits for the cancellation of order-1007 is started")
	sql := fmt.Sprintf("UPDATE Messages SET Status = 'RECEIVED', Attempts = 0 WHERE InboxId = '%s' AND Status = 'PARKED'", m.row.id)
	s.say("sql> %s", sql)
	_, err := s.db.ReadWriteTransaction(ctx, func(ctx context.Context, txn *spanner.ReadWriteTransaction) error {
		n, err := txn.Update(ctx, spanner.NewStatement(sql))
		if err == nil && n != 1 {
			return fmt.Errorf("%d rows changed, want 1", n)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("repair %s by hand: %w", m.row.id, err)
	}
	if err := s.relayUntil(ctx, "the repaired message is delivered", is(processed, m)); err != nil {
		return err
	}
	s.say("engine      got %v", s.inOrder(s.orders, "order-1007", "CancellationRequested"))
	return nil
}
