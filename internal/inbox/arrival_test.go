package inbox_test

import (
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestALateAnnouncementIsThatOfTheObjectThatWasImported(t *testing.T) {
	object := func(name string, generation int64) inbox.Object {
		return inbox.Object{Bucket: "b", Name: name, Generation: generation}
	}
	for _, test := range []struct {
		name             string
		imported, refers inbox.Object
		want             bool
	}{
		{"the same generation", object("x", 7), object("x", 7), true},
		{"a message that does not name it", object("x", 7), object("x", 0), true},
		{"a row that does not name it", object("x", 0), object("x", 7), true},
		{"another generation", object("x", 7), object("x", 8), false},
		{"another object", object("x", 7), object("y", 7), false},
		{"a message that refers to nothing", object("x", 7), inbox.Object{}, false},
		{"a row that a message made", inbox.Object{}, object("x", 7), false},
		{"neither", inbox.Object{}, inbox.Object{}, false},
	} {
		if got := (inbox.Known{Imported: test.imported}).AnnouncedBy(&inbox.Message{Claim: test.refers}); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
