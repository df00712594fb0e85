package claimcheck_test

import (
	"encoding/json"
	"errors"
	"strconv"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestAResourceIsThatOfTheNotification(t *testing.T) {
	b, s := world(t)
	generation := b.Write("in/a b.json", []byte("123456789"), func(w *storage.Writer) {
		w.ContentType, w.Metadata = "application/json", map[string]string{"origin": "batch"}
	})
	o := inbox.Object{Bucket: b.Name, Name: "in/a b.json", Generation: generation}
	content, err := s.Resource(within(t, time.Minute), o)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(content, &got); err != nil {
		t.Fatal(err)
	}
	text := strconv.FormatInt(generation, 10)
	for name, want := range map[string]any{
		"kind": "storage#object", "id": b.Name + "/in/a b.json/" + text, "name": "in/a b.json", "bucket": b.Name, "generation": text,
		"contentType": "application/json", "size": "9", "metadata": map[string]any{"origin": "batch"},
		"crc32c": "4waSgw==", // the check value of CRC-32C, big-endian
	} {
		if diff := cmp.Diff(want, got[name]); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	if created, err := time.Parse(time.RFC3339, got["timeCreated"].(string)); err != nil || created.IsZero() {
		t.Errorf("timeCreated is %v", got["timeCreated"])
	}

	empty := b.Write("empty", nil, nil)
	content, err = s.Resource(within(t, time.Minute), inbox.Object{Bucket: b.Name, Name: "empty", Generation: empty})
	if err != nil || json.Unmarshal(content, &got) != nil || got["size"] != "0" {
		t.Errorf("an empty object: %s, %v", content, err)
	}
	b.Write("in/a b.json", []byte("another"), nil)
	if _, err := s.Resource(within(t, time.Minute), o); !errors.Is(err, inbox.ErrObjectMissing) {
		t.Errorf("a generation that is gone: %v", err)
	}
}

func TestAListGoesOnBehindANameThatOthersBeginWith(t *testing.T) {
	b, s := world(t)
	for _, name := range []string{"a", "a/", "a/b", "a!", "aa"} {
		b.Write(name, []byte("x"), nil)
	}
	var got []string
	for last, more := "", true; more; more = last != "" {
		var err error
		last, err = s.List(within(t, time.Minute), b.Name, "", last, 1, func(o inbox.FoundObject) error {
			got = append(got, o.Name)
			return nil
		})
		if err != nil || len(got) > 10 {
			t.Fatal(got, err)
		}
	}
	if diff := cmp.Diff([]string{"a", "a!", "a/", "a/b", "aa"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
