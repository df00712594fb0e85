// Package expr compiles and evaluates the CEL expressions of a configuration over one message.
//
// Expressions see
//
//	message     id, publishTime (a timestamp; absent when unknown), orderingKey, subscription
//	attributes  a map of strings
//	payload     the decoded JSON, or null if the payload is none
//	hash(list)  the hex SHA-256 over the elements, each with its type and length
//
// and CEL's standard library and string extensions. https://github.com/google/cel-spec
//
// Promise. Values of the payload stay exact. An integer within 64 bits is a CEL int or uint. Any other number (1.10, 1e2,
// 1E400) keeps its literal, and goes out as it came in. What is computed of numbers depends on their values and never on
// their spelling: they compare, calculate, index and convert by their decimal values, and 100.0 is an int, as 100 is. Only a
// text made of a number is its literal. A double in an expression stands for its shortest decimal text, so that
// payload.price == 1.1 holds for the payload's 1.1, and not for 1.1000000000000000001.
//
// Sums, differences, products and remainders are exact; one of more than 100 digits is out of range. A quotient of two
// integers has no fraction, unless the static type of the division is double; any other has one, and is exact if it ends
// within 34 digits. One that does not is the nearest double; what is computed of it is too, and neither is a key or a
// sequence.
//
// Objects and lists selected whole go out with the very bytes they came in with. Of duplicate keys in an object the last
// wins.
//
// Payloads that are not valid UTF-8, not one JSON value, or nested deeper than MaxDepth are null. A string that holds half
// a surrogate pair (a text that JavaScript cut) cannot be computed with, because two such strings would become equal; it
// still goes out unchanged where an expression selects just it.
//
// No promise. Errors of CEL itself can hold values of the message; the package returns none of them, but a Fault that
// names what the expression lacked. Evaluation is bounded by a cost limit, not by time.
//
// Concurrency. A Program is safe for concurrent use. An Input is for one goroutine at a time: it decodes lazily.
package expr
