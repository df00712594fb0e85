package pushmsg

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

var (
	numbers = regexp.MustCompile(`[0-9]+`)
	quoted  = regexp.MustCompile(`"(\\.|[^"\\])*"`)
)

// fixedSentences are all a NotAPushError may say, apart from numbers.
func fixedSentences() []string {
	sentences := []string{sentenceEmpty, sentenceNoMessage, sentenceNoID, sentenceCloudEvent, sentenceBackground}
	sentences = append(sentences, strings.ReplaceAll(sentenceInvalidJSON, "%d", "0"))
	for _, kind := range []string{kindArray, kindString, kindNumber, kindBoolean, kindNull} {
		sentences = append(sentences, strings.ReplaceAll(sentenceMessageKind, "%s", kind))
	}
	return sentences
}

func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("testdata/*.json")
	if err != nil || len(files) == 0 {
		f.Fatalf("no seeds: %v", err)
	}
	for _, file := range files {
		for _, body := range bodies(f, strings.TrimSuffix(filepath.Base(file), ".json")) {
			f.Add(body)
		}
	}
	f.Add([]byte(`{"message":{"message\u0049d":"\ud83d\ude00","attributes":{"\ud800":"\udc00"},"data":"-_\/+\r\n"}}`))
	f.Add([]byte("\uFEFF{\"message\":{\"messageId\":1e3,\"attributes\":{\"\xff\":\"a\"}},\"subscription\":[{}]}"))

	fixed := fixedSentences()
	f.Fuzz(func(t *testing.T, body []byte) {
		unchanged := bytes.Clone(body)
		e, err := Parse(body)
		if !bytes.Equal(body, unchanged) {
			t.Fatal("Parse changed the body")
		}
		if err != nil {
			var refused *NotAPushError
			if !errors.As(err, &refused) || e != nil {
				t.Fatalf("Parse = %v, %v: not a NotAPushError alone", e, err)
			}
			if !slices.Contains(fixed, numbers.ReplaceAllString(refused.Sentence, "0")) {
				t.Fatalf("the sentence is no fixed one: %q", refused.Sentence)
			}
			return
		}
		checkInvariants(t, body, e)
		if e.Unreadable == "" {
			checkAgainstEncodingJSON(t, e)
			checkRoundTrip(t, e)
		}
	})
}

func checkInvariants(t *testing.T, body []byte, e *Envelope) {
	t.Helper()
	if e.MessageID == "" {
		t.Error("no message id")
	}
	for _, text := range []string{e.Subscription, e.MessageID, e.OrderingKey, e.Unreadable} {
		if !utf8.ValidString(text) || len(text) > inbox.MaxErrorMessage {
			t.Errorf("a text that Spanner refuses: %q", text)
		}
	}
	for _, text := range []string{e.Subscription, e.MessageID, e.OrderingKey} {
		if len(text) > inbox.MaxTransport {
			t.Errorf("a text of %d bytes", len(text))
		}
	}
	if unreadable := e.Unreadable != ""; unreadable != (e.Attributes == nil) || unreadable != (e.Data == nil) {
		t.Errorf("attributes or data do not fit Unreadable = %q", e.Unreadable)
	}
	if year := e.PublishTime.Year(); year < 1 || year > 9999 || e.DeliveryAttempt < 0 {
		t.Errorf("publish time %v, delivery attempt %d", e.PublishTime, e.DeliveryAttempt)
	}

	var top map[string]json.RawMessage
	if err := json.Unmarshal(bytes.TrimPrefix(body, []byte("\uFEFF")), &top); err != nil {
		t.Fatalf("an envelope from what encoding/json refuses: %v", err)
	}
	if !bytes.Equal(top["message"], e.RawMessage) {
		t.Errorf("RawMessage = %q, encoding/json has %q", e.RawMessage, top["message"])
	}

	if e.Unreadable == "" {
		return
	}
	// Names are quoted and may equal a value; a value may be as short as to occur in any sentence.
	said := quoted.ReplaceAllString(e.Unreadable, "")
	var message struct{ Attributes map[string]any }
	_ = json.Unmarshal(e.RawMessage, &message) // what is of another type has no values
	for _, value := range message.Attributes {
		if text, ok := value.(string); ok && len(text) >= 12 && strings.Contains(said, text) {
			t.Errorf("Unreadable has an attribute's value: %q", e.Unreadable)
		}
	}
}

// checkAgainstEncodingJSON reads the message a second time, with nothing of our own in it.
func checkAgainstEncodingJSON(t *testing.T, e *Envelope) {
	t.Helper()
	var members map[string]json.RawMessage
	if err := json.Unmarshal(e.RawMessage, &members); err != nil {
		t.Fatal(err)
	}
	attributes := make(map[string]string)
	if raw := members["attributes"]; raw != nil && string(raw) != "null" {
		if err := json.Unmarshal(raw, &attributes); err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff(attributes, e.Attributes); diff != "" {
		t.Errorf("attributes (-encoding/json +Parse):\n%s", diff)
	}
	var data string
	if raw := members["data"]; raw != nil {
		if err := json.Unmarshal(raw, &data); err != nil {
			t.Fatal(err)
		}
	}
	if want, ok := oracle(data); !ok || !bytes.Equal(want, e.Data) {
		t.Errorf("data %q: Parse has %q, encoding/base64 %q, %t", data, e.Data, want, ok)
	}
}

func checkRoundTrip(t *testing.T, e *Envelope) {
	t.Helper()
	again := mustParse(t, push(t, e.Attributes, e.Data))
	if diff := cmp.Diff(e.Attributes, again.Attributes); diff != "" || !bytes.Equal(e.Data, again.Data) {
		t.Errorf("the round trip changed data to %q, attributes (-first +second):\n%s", again.Data, diff)
	}
}

// oracle is what decodeBase64 must agree with.
func oracle(text string) ([]byte, bool) {
	text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
	if data, err := base64.StdEncoding.DecodeString(text); err == nil {
		return data, true
	}
	data, err := base64.RawStdEncoding.DecodeString(text)
	return data, err == nil
}

func FuzzDecodeBase64(f *testing.F) {
	for _, text := range []string{"", "eA==", "eHg", "-_+/", "e\nH\r\ng=", "@@not-base64@@", "eA=", "=", "eA==eA==", "e/\"é\\"} {
		f.Add(text, false)
		f.Add(text, true)
	}
	f.Fuzz(func(t *testing.T, text string, escape bool) {
		token, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		if escape {
			token = []byte(`"`)
			for _, c := range []byte(text) {
				token = append(token, `\u00`+string("0123456789abcdef"[c>>4])+string("0123456789ABCDEF"[c&15])...)
			}
			token = append(token, '"')
		}
		if err := json.Unmarshal(token, &text); err != nil {
			t.Fatal(err)
		}
		got, bad := decodeBase64(token[1 : len(token)-1])
		want, ok := oracle(text)
		if ok != (got != nil) || ok && !bytes.Equal(got, want) {
			t.Fatalf("decodeBase64 = %q, encoding/base64 has %q, %t", got, want, ok)
		}
		if !ok && (bad < 0 || bad > len(text)) {
			t.Fatalf("wrong at byte %d of %d", bad, len(text))
		}
	})
}
