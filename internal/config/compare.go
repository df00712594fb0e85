package config

import (
	"fmt"
	"strconv"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Change is one difference between two configurations that touches messages in flight.
type Change struct {
	Route  string // empty: the whole deployment
	Field  string
	Old    string
	New    string
	Effect string // a sentence: what it does to rows in flight
}

// String returns the change as one line.
func (c Change) String() string {
	where := c.Field
	if c.Route != "" {
		where = "route " + c.Route + ": " + c.Field
	}
	switch {
	case c.Old == "" && c.New == "":
		return fmt.Sprintf("%s. %s", where, c.Effect)
	case c.Old == "":
		return fmt.Sprintf("%s: now %s. %s", where, c.New, c.Effect)
	case c.New == "":
		return fmt.Sprintf("%s: no longer %s. %s", where, c.Old, c.Effect)
	}
	return fmt.Sprintf("%s: %s becomes %s. %s", where, c.Old, c.New, c.Effect)
}

// Compare returns each change of what identifies, orders or routes a message.
func Compare(old, new *Config) []Change {
	var changes []Change
	if old.Consumer != new.Consumer {
		changes = append(changes, Change{Field: "consumer", Old: old.Consumer, New: new.Consumer,
			Effect: "The consumer is part of every id: rows of the old name are relayed no more and must be worked off first, and " +
				"a message that comes back is taken as new and runs a second time."})
	}
	before := map[string]*Route{}
	for i := range old.Routes {
		before[old.Routes[i].Name] = &old.Routes[i]
	}
	kept := map[string]bool{}
	var oldOrder, newOrder []string
	for i := range new.Routes {
		route := &new.Routes[i]
		was, ok := before[route.Name]
		if !ok {
			changes = append(changes, Change{Route: route.Name, Field: "added", Effect: "Messages that it takes from the routes " +
				"after it, or from none, are routed to it from now on; stored ones keep their route until they are rerouted."})
			continue
		}
		kept[route.Name] = true
		newOrder = append(newOrder, route.Name)
		changes = append(changes, compareRoutes(was, route)...)
	}
	for i := range old.Routes {
		if name := old.Routes[i].Name; kept[name] {
			oldOrder = append(oldOrder, name)
		} else {
			changes = append(changes, Change{Route: name, Field: "removed", Effect: "Its open rows wait, with an alert, until the " +
				"route is back or they are rerouted; what it matched goes to a later route, or is parked as NO_ROUTE."})
		}
	}
	if a, b := fmt.Sprint(oldOrder), fmt.Sprint(newOrder); a != b {
		changes = append(changes, Change{Field: "routes", Old: a, New: b, Effect: "The first route that matches wins: messages " +
			"that several of them match are routed otherwise from now on; stored ones keep their route."})
	}
	return changes
}

func compareRoutes(old, new *Route) []Change {
	var changes []Change
	differ := func(field, was, is, effect string) {
		if was != is {
			changes = append(changes, Change{Route: new.Name, Field: field, Old: was, New: is, Effect: effect})
		}
	}
	differ("match", old.Match.Text, new.Match.Text, "Messages are routed otherwise from now on; stored ones keep their route.")
	differ("scope", string(old.Scope), string(new.Scope), "The scope is part of the id: a message republished across the "+
		"change is taken as new and runs a second time; a redelivery finds its row all the same.")
	differ("dedupe", orDefault(old.Dedupe.Text, "the message id"), orDefault(new.Dedupe.Text, "the message id"),
		"The dedupe key is the id: an event republished across the change is taken as new and runs a second time; a "+
			"redelivery finds its row all the same.")
	const lanes = "New messages go into other lanes than the stored ones of the same key, and the two do not wait for each " +
		"other: let the open rows of the route be worked off first where order matters."
	differ("key", old.Key.Text, new.Key.Text, lanes)
	differ("keySpace", old.KeySpace, new.KeySpace, lanes)
	differ("order", string(old.Order), string(new.Order), lanes)
	if old.Order == inbox.OrderSequence && new.Order == inbox.OrderSequence {
		differ("sequence", old.Sequence.Text, new.Sequence.Text, "New messages are placed among the stored ones of their lane by "+
			"another measure: one that comes out below the last finished position is late, and passes the others.")
	}
	differ("start", strconv.FormatBool(old.Start), strconv.FormatBool(new.Start), "Stored messages follow at their next attempt; an "+
		"attempt of unknown outcome is looked up in the new way: let those be worked off first.")
	differ("engine", old.Engine, new.Engine, "Stored messages go to the new engine at their next attempt; an attempt of "+
		"unknown outcome is looked up there, where nobody knows of it: let those be worked off first.")
	return changes
}

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
