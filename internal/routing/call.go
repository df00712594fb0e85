package routing

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// Call evaluates what an attempt needs: versions, schema, message and variables. version is that of the stored row, not
// of the message: a corrected version expression takes effect with a reroute. Nothing depends on the type yet. The error is
// a *ContractError, or wraps ErrUnknownRoute.
func (r *Router) Call(name string, in Input, _, version string) (call Call, err error) {
	route, ok := r.byName[name]
	if !ok {
		return Call{}, fmt.Errorf("route %q: %w", name, ErrUnknownRoute)
	}
	defer func() {
		// A message that breaks us must not take the others of its batch along.
		if recover() != nil {
			call, err = Call{}, contract("the route broke on this message")
		}
	}()
	if route.versions != nil && !route.versions[version] {
		return Call{}, contract("the version of this message is none of those that the route accepts (%s)",
			inbox.Text(strings.Join(route.Versions, ", "), 200))
	}
	input := in.expr()
	if route.Schema != nil && route.Schema.Compiled() != nil {
		if err := validate(route.Schema.Compiled(), input); err != nil {
			return Call{}, err
		}
	}
	call.Engine, call.Message = route.Engine, route.Message.Literal
	if route.message != nil {
		if call.Message, err = messageName(route, input); err != nil {
			return Call{}, err
		}
	}
	if route.Variables == nil {
		return call, nil
	}
	call.Variables = make(map[string]json.RawMessage, len(route.Variables))
	for i, v := range route.Variables {
		value, err := route.variables[i].JSON(input)
		if err != nil {
			return Call{}, contract("variable %s (%s): %s%s", v.Name, inbox.Text(v.Expr.Text, 200), err, whyNull(route.variables[i], input))
		}
		call.Variables[v.Name] = value
	}
	return call, nil
}

func messageName(route *route, in *expr.Input) (string, error) {
	name, err := route.message.Text(in)
	switch {
	case err != nil:
		return "", contract("message (%s): %s%s", inbox.Text(route.Message.Expr.Text, 200), err, whyNull(route.message, in))
	case name == "":
		return "", contract("message (%s): the name is empty", inbox.Text(route.Message.Expr.Text, 200))
	case len(name) > inbox.MaxType:
		return "", contract("message (%s): the name has more than %d bytes", inbox.Text(route.Message.Expr.Text, 200), inbox.MaxType)
	}
	return name, nil
}

// whyNull says why the payload is not read, where that is why a field is missing.
func whyNull(p *expr.Program, in *expr.Input) string {
	if why := in.Unread(); p.Refers("payload") && why != "" {
		return "; " + why
	}
	return ""
}

func contract(format string, args ...any) *ContractError {
	return &ContractError{Detail: inbox.Text(fmt.Sprintf(format, args...), inbox.MaxErrorMessage)}
}

// maxViolations bounds how many violations are named.
const maxViolations = 5

func validate(schema *jsonschema.Schema, in *expr.Input) error {
	if why := in.Unread(); why != "" {
		return contract("schema: %s", why)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(in.Document()))
	if err != nil {
		return contract("schema: the payload is not JSON")
	}
	if !reasonable(document) {
		return contract("schema: a number of the payload has an exponent that no schema can be checked against")
	}
	var invalid *jsonschema.ValidationError
	if err := schema.Validate(document); errors.As(err, &invalid) {
		all := violations(invalid, nil)
		slices.Sort(all) // the library's order is that of a map
		if len(all) > maxViolations {
			all = append(all[:maxViolations], fmt.Sprintf("and %d more", len(all)-maxViolations))
		}
		return contract("schema: %s", strings.Join(all, "; "))
	} else if err != nil {
		return contract("schema: the payload cannot be checked")
	}
	return nil
}

// violations names the place and the keyword of each leaf: the library's own texts hold values.
func violations(e *jsonschema.ValidationError, into []string) []string {
	if len(e.Causes) == 0 {
		keyword := strings.Join(e.ErrorKind.KeywordPath(), "/")
		if keyword == "" {
			keyword = "false schema"
		}
		place := inbox.Text("/"+strings.Join(e.InstanceLocation, "/"), 200)
		return append(into, fmt.Sprintf("%s at %s", keyword, place))
	}
	for _, cause := range e.Causes {
		into = violations(cause, into)
	}
	return into
}

// reasonable reports whether the numbers of a document can be made fractions, as a schema's checks do, at a cost that is
// in proportion to their texts.
func reasonable(document any) bool {
	switch v := document.(type) {
	case json.Number:
		return expr.Reasonable(string(v))
	case []any:
		for _, e := range v {
			if !reasonable(e) {
				return false
			}
		}
	case map[string]any:
		for _, e := range v {
			if !reasonable(e) {
				return false
			}
		}
	}
	return true
}
