package inbox_test

import (
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestOneOfSeveralSpellingsIsTakenEachTime(t *testing.T) {
	for name, tt := range map[string]struct {
		attributes map[string]string
		want       string
	}{
		"none":                        {map[string]string{"content": "a"}, ""},
		"another letter case":         {map[string]string{"Content-Type": "a"}, "a"},
		"an underscore":               {map[string]string{"content_type": "a"}, "a"},
		"no hyphen":                   {map[string]string{"contentType": "a"}, "a"},
		"its own spelling first":      {map[string]string{"Content-Type": "b", "content-type": "a", "CONTENT-TYPE": "c"}, "a"},
		"else by the order of names":  {map[string]string{"Content-Type": "b", "CONTENT-TYPE": "a", "contentType": "c"}, "a"},
		"its own spelling, and empty": {map[string]string{"Content-Type": "b", "content-type": ""}, ""},
	} {
		for range 20 { // a map has another order each time
			if got := inbox.Attribute(tt.attributes, "content-type"); got != tt.want {
				t.Fatalf("%s: %q, want %q", name, got, tt.want)
			}
		}
	}
}

func TestACharacterSetIsNoContentCoding(t *testing.T) {
	for said, want := range map[string]string{"": "", "identity": "", "UTF-8": "", "utf8": "", "GZIP": "gzip", " br ": "br", "gzip, br": "gzip, br"} {
		if got := inbox.ContentEncoding(map[string]string{"Content-Encoding": said}); got != want {
			t.Errorf("%q: %q, want %q", said, got, want)
		}
	}
}
