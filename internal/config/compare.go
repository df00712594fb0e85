package config

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Change is one difference between two configurations that touches messages in flight.
type Change struct {
	Route  string // empty: the whole deployment
	Field  string // as the file has it, below the route if there is one
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

// Compare returns each change that touches messages in flight. It goes by the types: a setting is compared because it is
// one.
func Compare(old, new *Config) []Change {
	var c comparison
	c.fields(reflect.ValueOf(*old), reflect.ValueOf(*new), "")
	return c.changes
}

type comparison struct {
	route   string
	changes []Change
}

func (c *comparison) add(field, old, new, effect string) {
	c.changes = append(c.changes, Change{Route: c.route, Field: field, Old: old, New: new, Effect: effect})
}

func (c *comparison) differ(field, old, new, effect string) {
	if old != new {
		c.add(field, old, new, effect)
	}
}

// fields compares two values of one of the configuration's types, field by field.
func (c *comparison) fields(old, new reflect.Value, at string) {
	for i := range old.NumField() {
		field := old.Type().Field(i)
		s := settings[old.Type().Name()+"."+field.Name]
		if !field.IsExported() || s.nothing != "" {
			continue
		}
		path := at
		if s.path != "" {
			path = join(at, s.path)
		}
		c.values(old.Field(i).Interface(), new.Field(i).Interface(), path, s.effect)
	}
}

func (c *comparison) values(old, new any, at, effect string) {
	switch old := old.(type) {
	case map[string]Engine:
		c.engines(old, new.(map[string]Engine), at)
	case []Route:
		c.routes(old, new.([]Route), at)
	case *Claim:
		c.claims(old, new.(*Claim), at)
	case []Variable:
		c.variables(old, new.([]Variable), at, effect)
	case *Schema:
		c.schemas(old, new.(*Schema), at, effect)
	case map[string]string:
		c.texts(old, new.(map[string]string), at, effect)
	case []string:
		c.differ(at, strings.Join(old, ", "), strings.Join(new.([]string), ", "), effect)
	case Message:
		c.differ(at, old.Literal+old.Expr.Text, new.(Message).Literal+new.(Message).Expr.Text, effect)
	case Expr:
		c.expressions(old, new.(Expr), at, effect)
	case time.Duration:
		c.differ(at, Duration(old), Duration(new.(time.Duration)), effect)
	default:
		if reflect.TypeOf(old).Kind() == reflect.Struct {
			c.fields(reflect.ValueOf(old), reflect.ValueOf(new), at)
			return
		}
		was, is := fmt.Sprint(old), fmt.Sprint(new)
		if strings.HasSuffix(at, ".url") && was != is {
			c.add(at, withoutQuery(was), withoutQuery(is), effect)
			return
		}
		c.differ(at, was, is, effect)
	}
}

// withoutQuery cuts off what may be a secret all the same.
func withoutQuery(url string) string {
	if before, _, ok := strings.Cut(url, "?"); ok {
		return before + "?..."
	}
	return url
}

func (c *comparison) expressions(old, new Expr, at, effect string) {
	switch {
	case at == "sequence" && (old.Absent() || new.Absent()):
		return // the order is another one, which says it all
	case at == "dedupe":
		c.differ(at, orDefault(old.Text, "the message id"), orDefault(new.Text, "the message id"), effect)
	default:
		c.differ(at, old.Text, new.Text, effect)
	}
}

func (c *comparison) engines(old, new map[string]Engine, at string) {
	names := map[string]bool{}
	for name := range old {
		names[name] = true
	}
	for _, name := range sorted(names) {
		path := join(at, name)
		if is, ok := new[name]; ok {
			c.fields(reflect.ValueOf(old[name]), reflect.ValueOf(is), path)
		} else {
			c.add(path, "", "", engineRemoved)
		}
	}
}

func (c *comparison) routes(old, new []Route, at string) {
	before := map[string]*Route{}
	for i := range old {
		before[old[i].Name] = &old[i]
	}
	kept := map[string]bool{}
	var oldOrder, newOrder []string
	for i := range new {
		route := &new[i]
		c.route = route.Name
		was, ok := before[route.Name]
		if !ok {
			c.add("added", "", "", routeAdded)
			continue
		}
		kept[route.Name] = true
		newOrder = append(newOrder, route.Name)
		c.fields(reflect.ValueOf(*was), reflect.ValueOf(*route), "")
	}
	for i := range old {
		c.route = old[i].Name
		if kept[c.route] {
			oldOrder = append(oldOrder, c.route)
		} else {
			c.add("removed", "", "", routeRemoved)
		}
	}
	c.route = ""
	c.differ(at, fmt.Sprint(oldOrder), fmt.Sprint(newOrder), routesMoved)
}

func (c *comparison) claims(old, new *Claim, at string) {
	switch {
	case old == nil && new == nil:
	case old == nil:
		c.add(at, "", new.String(), claimAdded)
	case new == nil:
		c.add(at, old.String(), "", claimRemoved)
	default:
		c.fields(reflect.ValueOf(*old), reflect.ValueOf(*new), at)
	}
}

// String returns what the claim refers to.
func (c *Claim) String() string {
	if !c.Reference.Absent() {
		return c.Reference.Text
	}
	return c.Bucket.Text + "/" + c.Object.Text
}

func (c *comparison) variables(old, new []Variable, at, effect string) {
	const whole = "the payload as it came"
	texts := func(all []Variable) map[string]string {
		m := map[string]string{}
		for _, v := range all {
			m[v.Name] = v.Expr.Text
		}
		return m
	}
	names := func(all []Variable) string {
		if all == nil {
			return whole
		}
		return "{" + strings.Join(sorted(texts(all)), ", ") + "}"
	}
	if (old == nil) != (new == nil) {
		c.add(at, names(old), names(new), effect)
		return
	}
	c.texts(texts(old), texts(new), at, effect)
}

func (c *comparison) texts(old, new map[string]string, at, effect string) {
	names := map[string]bool{}
	for _, m := range []map[string]string{old, new} {
		for name := range m {
			names[name] = true
		}
	}
	for _, name := range sorted(names) {
		was, inOld := old[name]
		is, inNew := new[name]
		switch path := join(at, name); {
		case inOld == inNew && was == is:
		case strings.HasSuffix(at, ".headers"): // a value is not repeated: it may be a secret all the same
			c.add(path, "", "", effect)
		default:
			c.add(path, was, is, effect)
		}
	}
}

func (c *comparison) schemas(old, new *Schema, at, effect string) {
	text := func(s *Schema) string {
		switch {
		case s == nil:
			return ""
		case s.Path != "":
			return s.Path
		}
		return "the one in the file"
	}
	var was, is any
	if old != nil {
		was = old.document
	}
	if new != nil {
		is = new.document
	}
	if reflect.DeepEqual(was, is) {
		return
	}
	if text(old) == text(new) {
		c.add(at, "", "", effect)
		return
	}
	c.add(at, text(old), text(new), effect)
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

func orDefault(text, otherwise string) string {
	if text == "" {
		return otherwise
	}
	return text
}
