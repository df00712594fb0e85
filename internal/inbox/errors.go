package inbox

import "errors"

// What a store answers, for errors.Is. Anything else is technical: out of reach, or of unknown outcome.
var (
	// ErrExists: the identity, or the push, already owns a row.
	ErrExists = errors.New("the message already has a row")
	// ErrRefused: the database refuses a value, and would refuse it again.
	ErrRefused = errors.New("the database refuses a value of the message")
	// ErrNotFound: there is no such row.
	ErrNotFound = errors.New("no such row")
	// ErrConflict: the row is not in the state that the action starts from.
	ErrConflict = errors.New("the row has changed meanwhile")
)
