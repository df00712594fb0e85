package inbox_test

import (
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestALateAnnouncementIsThatOfTheObjectThatWasImported(t *testing.T) {
	object := func(name string, generation int64) inbox.Object {
		return inbox.Object{Bucket: "b", Name: name, Generation: generation}
	}
	says := func(generation string) map[string]string {
		return map[string]string{"eventType": "OBJECT_FINALIZE", "objectGeneration": generation}
	}
	for _, test := range []struct {
		name             string
		imported, refers inbox.Object
		attributes       map[string]string
		want             bool
	}{
		{"the same generation", object("x", 7), object("x", 7), nil, true},
		{"the same generation, which only its attributes say", object("x", 7), object("x", 0), says("7"), true},
		{"another generation", object("x", 7), object("x", 8), nil, false},
		{"another generation, which only its attributes say", object("x", 7), object("x", 0), says("8"), false},
		{"another generation than its claim is made to say", object("x", 7), object("x", 7), says("8"), false},
		{"a message that does not say which", object("x", 7), object("x", 0), nil, false},
		{"a message that says nonsense", object("x", 7), object("x", 0), says("seven"), false},
		{"a row that does not say which", object("x", 0), object("x", 7), nil, false},
		{"neither says which", object("x", 0), object("x", 0), nil, false},
		{"another event", object("x", 7), object("x", 7), map[string]string{"eventType": "OBJECT_DELETE"}, false},
		{"another object", object("x", 7), object("y", 7), nil, false},
		{"a message that refers to nothing", object("x", 7), inbox.Object{}, says("7"), false},
		{"a row that a message made", inbox.Object{}, object("x", 7), nil, false},
		{"neither", inbox.Object{}, inbox.Object{}, nil, false},
	} {
		m := inbox.Message{Claim: test.refers, Attributes: test.attributes}
		if got := (inbox.Known{Imported: test.imported}).AnnouncedBy(&m); got != test.want {
			t.Errorf("%s: %t, want %t", test.name, got, test.want)
		}
	}
}
