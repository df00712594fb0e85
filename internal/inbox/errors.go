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

// What a store of objects answers, for errors.Is. Anything else is technical.
var (
	// ErrObjectMissing: there is no such object, or not in this generation any more.
	ErrObjectMissing = errors.New("the object is not there")
	// ErrObjectChanged: another object is there in its place.
	ErrObjectChanged = errors.New("the object is not the one that was referred to")
	// ErrObjectTooLarge: it is over the limit of the reader.
	ErrObjectTooLarge = errors.New("the object is too large to be read")
	// ErrObjectForbidden: we may not see whether it is there. That says nothing about the object.
	ErrObjectForbidden = errors.New("no permission to see the object")
	// ErrObjectFinished: it is there, and on its way out: its custom time is set, which nothing but a new generation undoes.
	ErrObjectFinished = errors.New("the object is marked for deletion")
)

// ObjectError is a technical failure of a store of objects.
type ObjectError struct {
	Status int // HTTP; 0: there was no answer
	Err    error
}

// Error returns the error's text, which can hold the object's name.
func (e *ObjectError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *ObjectError) Unwrap() error { return e.Err }

// HTTPStatus is the status, also of a nil error: 0.
func (e *ObjectError) HTTPStatus() int {
	if e == nil {
		return 0
	}
	return e.Status
}
