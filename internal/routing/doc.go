// Package routing applies a configuration to messages: the first route that matches, and what its expressions say.
//
// Promise. Route evaluates what the receipt needs, before the ack: it never panics, never fails, and takes no more than a
// bounded number of steps for an expression. What cannot be decided is a Decision all the same, parked as CONTRACT or
// NO_ROUTE. Every text of a Decision fits its column and is valid UTF-8. Call evaluates what an attempt needs, anew each
// time, so that a corrected route repairs a parked row. Neither puts a value of the message into an error or a detail;
// names of a payload's members can stand in what a schema complains of.
//
// What an expression that has no value means, by its use:
//
//	match                          the route does not match; so attributes.x != "a" asks for an x, too
//	type, version, tenant,         empty
//	aggregateType, correlationId,
//	causationId
//	key                            null, empty, or a missing field: a lane of its own; anything else that is no string,
//	                               number or bool, or fails: CONTRACT, because a quiet loss of the order would be found late
//	dedupe                         null or empty: the transport identity; a missing field, or anything else that is no
//	                               string, number or bool, or fails: CONTRACT, under the transport identity
//	sequence                       CONTRACT
//	message, variables             a ContractError
//
// A payload that is not JSON is null, and so is one that is not read (expr.Input.Unread). A key that misses a field of such a
// payload is CONTRACT and not no key, unless the message has no payload at all.
// Keys and dedupe keys are texts: a number's is that of its value, so that 1 and 1.0
// are one key, 9007199254740992 and 9007199254740993 are two, and 7 and "7" are one. Types and versions are the texts of
// the payload: 1.10 stays 1.10. A sequence may be written 1.0 or 1e2.
//
// No promise. Route does not look at schema, versions, message and variables. Nothing bounds an evaluation in time.
//
// Concurrency. A Router is safe for concurrent use; its expressions were compiled once.
package routing
