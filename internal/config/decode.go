package config

import (
	"errors"
	"regexp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/routing/expr"
)

func (r *reader) readConfig(n *node, cfg *Config) {
	r.fields(n, "", map[string]field{
		"consumer": r.text(&cfg.Consumer),
		"engines": func(n *node, path string) {
			r.each(n, path, func(e entry, at string) {
				engine := DefaultEngine()
				engine.Name = e.key
				r.readEngine(e.value, at, &engine)
				cfg.Engines[e.key] = engine
			})
		},
		"routes": func(n *node, path string) {
			r.list(n, path, func(n *node, path string) {
				route := DefaultRoute()
				route.Line = n.line
				r.readRoute(n, path, &route)
				cfg.Routes = append(cfg.Routes, route)
			})
		},
		"retention": func(n *node, path string) {
			back := &cfg.Retention.WaysBack
			r.fields(n, path, map[string]field{
				"processed": r.duration(&cfg.Retention.Processed),
				"payload":   r.duration(&cfg.Retention.Payload),
				"waysBack": func(n *node, path string) {
					r.fields(n, path, map[string]field{
						"subscription": r.duration(&back.Subscription),
						"deadLetter":   r.duration(&back.DeadLetter),
						"replay":       r.duration(&back.Replay),
					})
				},
			})
		},
		"relay": func(n *node, path string) { r.readRelay(n, path, &cfg.Relay) },
		"traceAttributes": func(n *node, path string) {
			r.list(n, path, func(n *node, path string) {
				var name string
				r.text(&name)(n, path)
				cfg.TraceAttributes = append(cfg.TraceAttributes, name)
			})
		},
		"claimCheck": func(n *node, path string) {
			r.fields(n, path, map[string]field{
				"threshold": r.size(&cfg.ClaimCheck.Threshold),
				"buckets": func(n *node, path string) {
					r.list(n, path, func(n *node, path string) {
						var bucket string
						r.text(&bucket)(n, path)
						cfg.ClaimCheck.Buckets = append(cfg.ClaimCheck.Buckets, bucket)
					})
				},
			})
		},
	})
}

func (r *reader) readRelay(n *node, path string, relay *Relay) {
	r.fields(n, path, map[string]field{
		"budget":      r.duration(&relay.Budget),
		"poll":        r.duration(&relay.Poll),
		"parallel":    r.integer(&relay.Parallel),
		"batch":       r.integer(&relay.Batch),
		"lease":       r.duration(&relay.Lease),
		"lostWorkers": r.integer(&relay.LostWorkers),
		"poison": func(n *node, path string) {
			r.fields(n, path, map[string]field{
				"failures": r.integer(&relay.Poison.Failures),
				"over":     r.duration(&relay.Poison.Over),
			})
		},
		"breaker": func(n *node, path string) {
			r.fields(n, path, map[string]field{"failures": r.integer(&relay.Breaker.Failures)})
		},
	})
}

func (r *reader) readEngine(n *node, path string, engine *Engine) {
	maxAnswer := int(engine.MaxAnswerBytes)
	r.fields(n, path, map[string]field{
		"kind":           r.text(&engine.Kind),
		"url":            r.text(&engine.URL),
		"timeout":        r.duration(&engine.Timeout),
		"idempotent":     r.boolean(&engine.Idempotent),
		"probe":          r.boolean(&engine.Probe),
		"maxAnswerBytes": r.integer(&maxAnswer),
		"headers":        r.texts(&engine.Headers),
		"statuses":       r.texts(&engine.Statuses),
		"auth": func(n *node, path string) {
			r.fields(n, path, map[string]field{
				"kind":        r.text(&engine.Auth.Kind),
				"username":    r.text(&engine.Auth.Username),
				"passwordEnv": r.text(&engine.Auth.PasswordEnv),
				"tokenEnv":    r.text(&engine.Auth.TokenEnv),
				"audience":    r.text(&engine.Auth.Audience),
			})
		},
		"processDefinitionKey": r.text(&engine.Flowable.ProcessDefinitionKey),
		"tenant":               r.text(&engine.Flowable.Tenant),
		"correlation": func(n *node, path string) {
			r.fields(n, path, map[string]field{
				"variable": r.text(&engine.Flowable.CorrelationVariable),
				"type":     r.text(&engine.Flowable.CorrelationType),
			})
		},
		"variableTypes": r.texts(&engine.Flowable.VariableTypes),
	})
	engine.MaxAnswerBytes = int64(maxAnswer)
	if engine.Kind == KindFlowable && !r.has(path+".probe") {
		engine.Probe = true // by the marker that each delivery sets
	}
}

func (r *reader) texts(into *map[string]string) field {
	return func(n *node, path string) {
		*into = map[string]string{}
		r.each(n, path, func(e entry, at string) {
			var text string
			r.text(&text)(e.value, at)
			(*into)[e.key] = text
		})
	}
}

func (r *reader) readRoute(n *node, path string, route *Route) {
	r.fields(n, path, map[string]field{
		"name":          r.text(&route.Name),
		"match":         r.expression(&route.Match, expr.ForMatch),
		"type":          r.expression(&route.Type, expr.ForText),
		"version":       r.expression(&route.Version, expr.ForText),
		"tenant":        r.expression(&route.Tenant, expr.ForText),
		"aggregateType": r.expression(&route.AggregateType, expr.ForText),
		"correlationId": r.expression(&route.CorrelationID, expr.ForText),
		"causationId":   r.expression(&route.CausationID, expr.ForText),
		"key":           r.expression(&route.Key, expr.ForKey),
		"keySpace":      r.text(&route.KeySpace),
		"dedupe":        r.expression(&route.Dedupe, expr.ForKey),
		"scope":         oneOf(r, &route.Scope, ScopeSubscription, ScopeConsumer),
		"order": oneOf(r, &route.Order,
			inbox.OrderPublished, inbox.OrderReceived, inbox.OrderSequence, inbox.OrderNone),
		"sequence": r.expression(&route.Sequence, expr.ForSequence),
		"engine":   r.text(&route.Engine),
		"message":  func(n *node, path string) { r.readMessage(n, path, &route.Message) },
		"start":    r.boolean(&route.Start),
		"variables": func(n *node, path string) {
			route.Variables = []Variable{}
			r.each(n, path, func(e entry, at string) {
				v := Variable{Name: e.key}
				r.expression(&v.Expr, expr.ForVariable)(e.value, at)
				route.Variables = append(route.Variables, v)
			})
		},
		"patience": r.duration(&route.Patience),
		"retry": func(n *node, path string) {
			r.fields(n, path, map[string]field{"min": r.duration(&route.Retry.Min), "max": r.duration(&route.Retry.Max)})
		},
		"parked":     oneOf(r, &route.Parked, ParkedPass, ParkedBlock),
		"deadLetter": oneOf(r, &route.DeadLetter, DeadLetterPark, DeadLetterProcess),
		"claim":      func(n *node, path string) { route.Claim = r.readClaim(n, path) },
		"schema":     func(n *node, path string) { route.Schema = r.readSchema(n, path) },
		"versions": func(n *node, path string) {
			r.list(n, path, func(n *node, path string) {
				var version string
				r.text(&version)(n, path)
				route.Versions = append(route.Versions, version)
			})
		},
	})
}

// readClaim reads a claim: a map, or nothing but the reference.
func (r *reader) readClaim(n *node, path string) *Claim {
	claim := DefaultClaim()
	if n.kind == scalarNode {
		r.expression(&claim.Reference, expr.ForText)(n, path)
		return &claim
	}
	r.fields(n, path, map[string]field{
		"reference":  r.expression(&claim.Reference, expr.ForText),
		"bucket":     r.expression(&claim.Bucket, expr.ForText),
		"object":     r.expression(&claim.Object, expr.ForText),
		"generation": r.expression(&claim.Generation, expr.ForText),
		"sha256":     r.expression(&claim.SHA256, expr.ForText),
		"read":       r.boolean(&claim.Read),
		"maxBytes":   r.size(&claim.MaxBytes),
	})
	return &claim
}

func (r *reader) expression(into *Expr, use expr.Use) field {
	return func(n *node, path string) {
		if n.kind != scalarNode || n.text == "" {
			r.fault(path, "this must be a CEL expression, not %s; leave the setting out where it needs none", n.kind)
			return
		}
		*into = Expr{Text: n.text, Line: n.line, Column: n.column}
		if r.swallowed(n, path) {
			return
		}
		program, err := expr.Compile(n.text, use)
		if err != nil {
			r.syntaxFaults(n, path, err, "")
			return
		}
		if program.Refers("claim") && use != expr.ForVariable {
			r.fault(path, "claim is known only when an attempt is made, to message and variables; read the reference from payload or attributes here")
		}
		into.program = program
		r.lintDivisions(n, path, program)
		if use == expr.ForMatch || use == expr.ForKey {
			r.lintSpellings(n, path, program)
		}
	}
}

func (r *reader) syntaxFaults(n *node, path string, err error, hint string) {
	all := []error{err}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all = joined.Unwrap()
	}
	for _, err := range all {
		line, column := n.line, n.column
		var syntax *expr.SyntaxError
		if errors.As(err, &syntax) {
			line, column = r.place(n, syntax.Line, syntax.Column)
		}
		r.faultAt(line, column, path, err.Error()+hint)
	}
}

// refers finds what makes a message's name an expression. A name such as order-message.created does not.
var refers = regexp.MustCompile(`(^|[^A-Za-z0-9_.\-/:$@#])(attributes|payload|message|claim)\s*(\.|\[)`)

func (r *reader) readMessage(n *node, path string, message *Message) {
	if n.kind != scalarNode || n.text == "" {
		r.fault(path, "this must be the engine's name of the message, or an expression that refers to attributes, payload or message")
		return
	}
	if !refers.MatchString(n.text) {
		if len(n.text) > maxMessageName {
			r.fault(path, "the message's name has more than %d bytes", maxMessageName)
		}
		message.Literal = n.text
		r.lintLiteral(n, path)
		return
	}
	message.Expr = Expr{Text: n.text, Line: n.line, Column: n.column}
	if r.swallowed(n, path) {
		return
	}
	program, err := expr.Compile(n.text, expr.ForText)
	if err != nil {
		r.syntaxFaults(n, path, err, `; a name that looks like an expression needs quotes of its own, as in '"message.created"'`)
		return
	}
	message.Expr.program = program
	r.lintDivisions(n, path, program)
}

const maxMessageName = 256
