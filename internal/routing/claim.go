package routing

import (
	"errors"
	"fmt"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

// claim holds the programs of a config.Claim.
type claim struct {
	reference, bucket, object, generation, sha256 *expr.Program
}

// evaluate says what a message refers to. The detail of the error names the expression and the fault, never a value.
func (c claim) evaluate(in *expr.Input) (inbox.Object, *ContractError) {
	texts := map[string]string{}
	for _, part := range []struct {
		name     string
		program  *expr.Program
		optional bool
	}{
		{"reference", c.reference, false}, {"bucket", c.bucket, false}, {"object", c.object, false},
		{"generation", c.generation, true}, {"sha256", c.sha256, true},
	} {
		if part.program == nil {
			continue
		}
		text, err := part.program.Text(in)
		var fault *expr.Fault
		switch {
		case errors.As(err, &fault) && fault.Missing && part.optional:
			continue // the sender does not say
		case err != nil:
			return inbox.Object{}, contract("claim.%s: %s", part.name, err)
		}
		texts[part.name] = text
	}
	var object inbox.Object
	var err error
	if c.reference != nil {
		if object, err = inbox.ParseReference(texts["reference"]); err == nil {
			if texts["generation"] == "" && object.Generation != 0 {
				texts["generation"] = fmt.Sprint(object.Generation)
			}
			object, err = inbox.Reference(object.Bucket, object.Name, texts["generation"], texts["sha256"])
		}
	} else {
		object, err = inbox.Reference(texts["bucket"], texts["object"], texts["generation"], texts["sha256"])
	}
	if err != nil {
		return inbox.Object{}, contract("claim: %s", err)
	}
	return object, nil
}

// Claim evaluates what a message refers to, for one that was stored before its route had a claim, or that was parked for a
// claim which could not be read. The error is a *ContractError, or wraps ErrUnknownRoute.
func (r *Router) Claim(name string, in Input) (object inbox.Object, err error) {
	route, ok := r.byName[name]
	if !ok || route.Claim == nil {
		return inbox.Object{}, fmt.Errorf("route %q: %w", name, ErrUnknownRoute)
	}
	defer func() {
		if recover() != nil {
			object, err = inbox.Object{}, contract("the claim broke on this message")
		}
	}()
	object, fault := route.claim.evaluate(in.expr())
	if fault != nil {
		return inbox.Object{}, fault
	}
	return object, nil
}
