package routing

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// Route chooses the first route that matches and evaluates what the receipt needs. It never panics.
func (r *Router) Route(in Input) (d Decision) {
	var taken *route
	defer func() {
		// An error here would be a redelivery loop: whatever a message does to us, it is stored.
		if recover() != nil {
			d = Decision{Order: inbox.OrderNone, Park: inbox.NoRoute, ParkDetail: "routing broke on this message"}
			if taken != nil {
				d.Route, d.Park = taken.Name, inbox.Contract
			}
		}
	}()
	input := in.expr()
	for _, route := range r.routes {
		if route.match == nil || route.match.Bool(input) {
			taken = route
			return route.decide(input)
		}
	}
	return Decision{Order: inbox.OrderNone, Park: inbox.NoRoute, ParkDetail: "no route matches"}
}

func (r *route) decide(in *expr.Input) Decision {
	d := Decision{
		Route: r.Name, KeySpace: r.KeySpace, Order: r.Order, Blocks: r.Blocks(),
		ConsumerScope: r.Scope == config.ScopeConsumer, Process: r.DeadLetter == config.DeadLetterProcess,
	}
	var faults []string
	park := func(name, source, reason string) {
		faults = append(faults, fmt.Sprintf("%s (%s): %s", name, inbox.Text(source, 200), reason))
	}
	for _, t := range r.texts {
		value, err := t.program.Text(in)
		if err != nil {
			continue // it only describes
		}
		if len(value) > inbox.MaxType {
			park(t.name, r.source(t.name), fmt.Sprintf("the text has %d bytes, its column holds %d", len(value), inbox.MaxType))
		}
		*t.into(&d) = inbox.Text(value, inbox.MaxType)
	}
	if r.key != nil {
		key, reason, missing := keyText(r.key, in, inbox.MaxKey)
		if why := in.Unread(); missing && why != "" && !in.Empty() && r.key.Refers("payload") {
			// The field may well be there: without its key the message would run out of its order.
			reason = "a field that it reads is missing; " + why
		}
		if reason != "" {
			park("key", r.Key.Text, reason)
		}
		d.Key = key
	}
	if r.dedupe != nil {
		key, reason, missing := keyText(r.dedupe, in, inbox.MaxDedupeKey)
		if missing {
			// An expression that failed is no statement about the event; an empty or null value is: it has no id of its own.
			reason = "a field that it reads is missing: nothing to recognise the event by" + whyNull(r.dedupe, in)
		}
		if reason != "" {
			park("dedupe", r.Dedupe.Text, reason)
		}
		d.DedupeKey = key
	}
	if r.sequence != nil {
		sequence, err := r.sequence.Sequence(in)
		if err != nil {
			park("sequence", r.Sequence.Text, err.Error()+whyNull(r.sequence, in))
		}
		d.Sequence = sequence
	}
	if r.Claim != nil {
		object, fault := r.claim.evaluate(in)
		if fault != nil {
			faults = append(faults, fault.Detail)
		}
		d.Claim = object
	}
	if len(faults) > 0 {
		d.Park = inbox.Contract
		d.ParkDetail = inbox.Text(strings.Join(faults, "; "), inbox.MaxErrorMessage)
	}
	return d
}

// keyText returns a key, or why the value cannot be one. A value that is not there is no key; missing says that a field
// which the expression reads is not there.
func keyText(p *expr.Program, in *expr.Input, limit int) (key, reason string, missing bool) {
	key, err := p.Key(in)
	var fault *expr.Fault
	switch {
	case errors.As(err, &fault) && fault.Missing:
		return "", "", true
	case err != nil:
		return "", err.Error(), false
	case len(key) > limit:
		return "", fmt.Sprintf("the key has %d bytes, its column holds %d", len(key), limit), false
	case !utf8.ValidString(key):
		return "", "the key is not valid UTF-8", false
	}
	return key, "", false
}

// source returns the text of a descriptive expression.
func (r *route) source(name string) string {
	return map[string]config.Expr{
		"type": r.Type, "version": r.Version, "tenant": r.Tenant, "aggregateType": r.AggregateType,
		"correlationId": r.CorrelationID, "causationId": r.CausationID,
	}[name].Text
}
