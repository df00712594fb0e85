package pushmsg

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// digestOf is what stands for an id that cannot be kept.
func digestOf(jsonText string) string { return "sha256:" + inbox.SHA256([]byte(jsonText)) }

func TestParse(t *testing.T) {
	overLong := `"` + strings.Repeat("x", inbox.MaxTransport+1) + `"`
	longest := strings.Repeat("x", inbox.MaxTransport)
	overLongNumber := strings.Repeat("1", inbox.MaxTransport+1)
	at := time.Date(2026, 3, 2, 8, 15, 30, 0, time.UTC)
	none := map[string]string{}
	tests := []struct {
		name string
		body string
		want Envelope
	}{
		{
			"the snake spellings count when the camel ones are absent",
			`{"message":{"message_id":"1","publish_time":"2026-03-02T08:15:30Z","ordering_key":"k"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", OrderingKey: "k", PublishTime: at, Attributes: none, Data: []byte{}},
		},
		{
			"the snake spellings count when the camel ones are empty or null",
			`{"message":{"messageId":"","message_id":"1","publishTime":"","publish_time":"2026-03-02T08:15:30Z",` +
				`"orderingKey":null,"ordering_key":"k"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", OrderingKey: "k", PublishTime: at, Attributes: none, Data: []byte{}},
		},
		{
			"the camel spellings count when both are there and differ",
			`{"message":{"message_id":"2","messageId":"1","publish_time":"2020-01-01T00:00:00Z",` +
				`"publishTime":"2026-03-02T08:15:30Z","ordering_key":"l","orderingKey":"k"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", OrderingKey: "k", PublishTime: at, Attributes: none, Data: []byte{}},
		},
		{
			"names in another letter case are other names",
			`{"Message":{"messageId":"2"},"message":{"messageid":"3","messageId":"1","MESSAGEID":"4","Data":"eA==",` +
				`"Attributes":5,"ORDERINGKEY":5},"Subscription":"t","subscription":"s","DELIVERYATTEMPT":3}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"names in escapes are the same names",
			`{"\u006dessage":{"message\u0049d":"1","d\u0061ta":"e\u0048g="},"s\u0075bscription":"s","delivery\u0041ttempt":3}`,
			Envelope{Subscription: "s", MessageID: "1", DeliveryAttempt: 3, Attributes: none, Data: []byte("xx")},
		},
		{
			"escaped names that only look like ours are other names",
			`{"subscription":"s","message":{"messageId":"1","message\u0049d\u0000":"2","d\u00e4ta":"?","d\"ata\b\f\t\n\r\/":"?",` +
				`"` + strings.Repeat(`\u0061`, 500) + `":1}}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"the last of several equal names counts",
			`{"message":7,"message":{"messageId":"2","messageId":"1","attributes":{"a":"1","a":"2"}},"subscription":"t","subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: map[string]string{"a": "2"}, Data: []byte{}},
		},
		{
			"a number as message id keeps its literal",
			`{"message":{"messageId":9007199254740993},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "9007199254740993", Attributes: none, Data: []byte{}},
		},
		{
			"a message id of a wrong type does not hide the other spelling",
			`{"message":{"messageId":{"a":[1]},"message_id":"1"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a message without a subscription has an empty scope",
			`{"message":{"messageId":"1"}}`,
			Envelope{MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a null subscription, data and attributes are absent",
			`{"message":{"messageId":"1","data":null,"attributes":null},"subscription":null,"deliveryAttempt":null}`,
			Envelope{MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a delivery attempt that is no count is ignored",
			`{"message":{"messageId":"1"},"subscription":"s","deliveryAttempt":"x"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a negative delivery attempt is ignored",
			`{"message":{"messageId":"1"},"subscription":"s","deliveryAttempt":-1}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a delivery attempt may be a string, as protobuf's JSON allows",
			`{"message":{"messageId":"1"},"subscription":"s","deliveryAttempt":"5"}`,
			Envelope{Subscription: "s", MessageID: "1", DeliveryAttempt: 5, Attributes: none, Data: []byte{}},
		},
		{
			"a publish time of a wrong type is unknown",
			`{"message":{"messageId":"1","publishTime":{"seconds":5}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a publish time that its offset puts outside Spanner's range is unknown",
			`{"message":{"messageId":"1","publishTime":"9999-12-31T23:59:59-01:00"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"a publish time in the year 0 is unknown",
			`{"message":{"messageId":"1","publishTime":"0000-12-31T23:59:59Z"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"an unparsable publish time does not hide the other spelling",
			`{"message":{"messageId":"1","publishTime":"yesterday","publish_time":"2026-03-02T09:15:30+01:00"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", PublishTime: at, Attributes: none, Data: []byte{}},
		},
		{
			"the longest texts are kept",
			`{"message":{"messageId":"` + longest + `","orderingKey":"` + longest + `"},"subscription":"` + longest + `"}`,
			Envelope{Subscription: longest, MessageID: longest, OrderingKey: longest, Attributes: none, Data: []byte{}},
		},
		{
			"surrogate pairs, U+FFFD and NUL are text",
			`{"message":{"messageId":"1","attributes":{"\ud83d\ude00":"\\ud800\ufffd` + "\uFFFD" + `\u0000"}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: map[string]string{"😀": "\\ud800\uFFFD\uFFFD\x00"}, Data: []byte{}},
		},
		{
			"a byte order mark and space around the body are ignored",
			"\uFEFF\r\n {\"message\" :\t{ \"messageId\" : \"1\" } , \"subscription\" : \"s\" } \n",
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},
		{
			"unknown members of any depth are passed over",
			`{"a":[{"b":"]}\"\\"},[[]],-1.5e3,true],"message":{"x":{"messageId":"2"},"messageId":"1"},"subscription":"s","z":null}`,
			Envelope{Subscription: "s", MessageID: "1", Attributes: none, Data: []byte{}},
		},

		{
			"a message id over the limit is replaced by its hash",
			`{"message":{"messageId":` + overLong + `},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: digestOf(overLong), Unreadable: "message id is longer than 1024 bytes"},
		},
		{
			"a number over the limit is replaced by its hash",
			`{"message":{"messageId":` + overLongNumber + `},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: digestOf(overLongNumber), Unreadable: "message id is longer than 1024 bytes"},
		},
		{
			"a message id with half a surrogate pair is replaced by its hash",
			`{"message":{"messageId":"1\udc00"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: digestOf(`"1\udc00"`), Unreadable: "message id is not valid Unicode"},
		},
		{
			"a message id with invalid UTF-8 is replaced by its hash",
			"{\"message\":{\"messageId\":\"1\xff\"},\"subscription\":\"s\"}",
			Envelope{Subscription: "s", MessageID: digestOf("\"1\xff\""), Unreadable: "message id is not valid Unicode"},
		},
		{
			"nobody can choose the id of an unreadable message",
			`{"message":{"messageId":"` + digestOf(overLong) + `"},"subscription":"s"}`,
			Envelope{
				Subscription: "s", MessageID: digestOf(`"` + digestOf(overLong) + `"`),
				Unreadable: `message id begins with "sha256:"`,
			},
		},
		{
			"a subscription of a wrong type is replaced by its hash",
			`{"message":{"messageId":"1"},"subscription":["s"]}`,
			Envelope{Subscription: digestOf(`["s"]`), MessageID: "1", Unreadable: "subscription is an array, not a string"},
		},
		{
			"a subscription over the limit is replaced by its hash",
			`{"message":{"messageId":"1"},"subscription":` + overLong + `}`,
			Envelope{Subscription: digestOf(overLong), MessageID: "1", Unreadable: "subscription is longer than 1024 bytes"},
		},
		{
			"an ordering key of a wrong type is unreadable",
			`{"message":{"messageId":"1","orderingKey":5},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: "ordering key is a number, not a string"},
		},
		{
			"an ordering key over the limit is unreadable, not cut",
			`{"message":{"messageId":"1","orderingKey":` + overLong + `},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: "ordering key is longer than 1024 bytes"},
		},
		{
			"an ordering key with half a surrogate pair is unreadable",
			`{"message":{"messageId":"1","orderingKey":"\ud83d"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: "ordering key is not valid Unicode"},
		},
		{
			"data of a wrong type is unreadable",
			`{"message":{"messageId":"1","data":{"a":1}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: "data is an object, not a string"},
		},
		{
			"attributes of a wrong type are unreadable",
			`{"message":{"messageId":"1","attributes":"a=b"},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: "attributes is a string, not an object"},
		},
		{
			"an attribute that is a boolean is named",
			`{"message":{"messageId":"1","data":"eA==","attributes":{"ok":"yes","urgent":true}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: `attribute "urgent" is a boolean, not a string`},
		},
		{
			"an attribute value with half a surrogate pair is unreadable",
			`{"message":{"messageId":"1","attributes":{"k":"\ud83d\u0041"}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: `the value of attribute "k" is not valid Unicode`},
		},
		{
			"an attribute value with two first halves of a pair is unreadable",
			`{"message":{"messageId":"1","attributes":{"k":"\ud83d\ud83d"}},"subscription":"s"}`,
			Envelope{Subscription: "s", MessageID: "1", Unreadable: `the value of attribute "k" is not valid Unicode`},
		},
		{
			"an attribute value with invalid UTF-8 is unreadable",
			"{\"message\":{\"messageId\":\"1\",\"attributes\":{\"k\":\"\xc3(\"}},\"subscription\":\"s\"}",
			Envelope{Subscription: "s", MessageID: "1", Unreadable: `the value of attribute "k" is not valid Unicode`},
		},
		{
			"attribute names with invalid UTF-8 are not merged",
			"{\"message\":{\"messageId\":\"1\",\"attributes\":{\"\xfe\":\"1\",\"\xff\":\"2\"}},\"subscription\":\"s\"}",
			Envelope{Subscription: "s", MessageID: "1", Unreadable: `the name of attribute "\xfe" is not valid Unicode`},
		},
		{
			"a faulty attribute's name is quoted and cut",
			`{"message":{"messageId":"1","attributes":{"a\n\u001b[31m` + strings.Repeat("n", 100) + `":1}},"subscription":"s"}`,
			Envelope{
				Subscription: "s", MessageID: "1",
				Unreadable: `attribute "a\n\x1b[31m` + strings.Repeat("n", 57) + `" (cut) is a number, not a string`,
			},
		},
		{
			"all faults are named",
			`{"message":{"messageId":"1","orderingKey":5,"attributes":[],"data":"="},"subscription":"s"}`,
			Envelope{
				Subscription: "s", MessageID: "1",
				Unreadable: "ordering key is a number, not a string; attributes is an array, not an object; " +
					"data is not base64 at byte 0",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) { checkEnvelope(t, []byte(test.body), test.want) })
	}
}

func TestParseRefuses(t *testing.T) {
	tests := []struct {
		name, body, want string
	}{
		{"text that is no JSON", "hello", fmt.Sprintf(sentenceInvalidJSON, 1, 1, 0)},
		{"a body that ends too early", "{\n \"message\": {", fmt.Sprintf(sentenceInvalidJSON, 2, 13, 14)},
		{"garbage after the object", "{}\n{}", fmt.Sprintf(sentenceInvalidJSON, 2, 1, 3)},
		{"UTF-16", "\xff\xfe{\x00}\x00", fmt.Sprintf(sentenceInvalidJSON, 1, 1, 0)},
		{"an object nested deeper than encoding/json reads", strings.Repeat(`{"message":`, 20000) + "1" + strings.Repeat("}", 20000),
			fmt.Sprintf(sentenceInvalidJSON, 1, 110001, 110000)},
		{"a string", `"message"`, sentenceNoMessage},
		{"a number", `5`, sentenceNoMessage},
		{"JSON data of a publisher", `{"orderId":"WO-4711","event":"completed"}`, sentenceNoMessage},
		{"a message in another letter case", `{"MESSAGE":{"messageId":"1"}}`, sentenceNoMessage},
		{"a message that is a list", `{"message":[{"messageId":"1"}]}`, fmt.Sprintf(sentenceMessageKind, "an array")},
		{"a message that is a number", `{"message":-1}`, fmt.Sprintf(sentenceMessageKind, "a number")},
		{"a message that is a boolean", `{"message":false}`, fmt.Sprintf(sentenceMessageKind, "a boolean")},
		{"an empty message", `{"message":{}}`, sentenceNoID},
		{"the id of Google's own sample", `{"message":{"id":"1","data":"eA=="}}`, sentenceNoID},
		{"a null id", `{"message":{"messageId":null,"message_id":null}}`, sentenceNoID},
		{"an id that is an object", `{"message":{"messageId":{"a":"1"}}}`, sentenceNoID},
		{"an id that is a boolean", `{"message":{"messageId":true}}`, sentenceNoID},
		{"an id in another letter case", `{"message":{"MessageId":"1"}}`, sentenceNoID},
		{"a last id that is empty", `{"message":{"messageId":"1","messageId":""}}`, sentenceNoID},
		{"a CloudEvent without data", `{"specversion":"1.0","id":"1"}`, sentenceCloudEvent},
		{"data beside a context of another kind", `{"data":{},"context":"x"}`, sentenceNoMessage},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, refusal(t, []byte(test.body))); diff != "" {
				t.Errorf("sentence (-want +got):\n%s", diff)
			}
		})
	}
}

func TestTraceParent(t *testing.T) {
	const ids = "-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-"
	tests := []struct {
		name, attribute, want string
	}{
		{"sampled", "00" + ids + "01", "00" + ids + "01"},
		{"not sampled", "00" + ids + "00", "00" + ids + "00"},
		{"absent", "", ""},
		{"cut", ("00" + ids + "01")[:54], ""},
		{"version 00 with more fields", "00" + ids + "01-x", ""},
		{"a later version becomes 00", "cc" + ids + "01", "00" + ids + "01"},
		{"a later version keeps only the sampled flag", "01" + ids + "fe-more", "00" + ids + "00"},
		{"a later version with a longer last field", "01" + ids + "011", ""},
		{"the forbidden version", "ff" + ids + "01", ""},
		{"capital letters", "00" + strings.ToUpper(ids) + "01", ""},
		{"no hex in the version", "0x" + ids + "01", ""},
		{"no hex in the flags", "00" + ids + "0g", ""},
		{"a zero trace id", "00-" + strings.Repeat("0", 32) + "-00f067aa0ba902b7-01", ""},
		{"a zero parent id", "00-4bf92f3577b34da6a3ce929d0e0e4736-" + strings.Repeat("0", 16) + "-01", ""},
		{"underscores", strings.ReplaceAll("00"+ids+"01", "-", "_"), ""},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			e := &Envelope{Attributes: map[string]string{"googclient_traceparent": test.attribute}}
			if got := e.TraceParent(); got != test.want {
				t.Errorf("TraceParent() = %q, want %q", got, test.want)
			}
		})
	}
	if got := (&Envelope{Unreadable: "x"}).TraceParent(); got != "" {
		t.Errorf("TraceParent() of an unreadable envelope = %q, want none", got)
	}
}

func TestDecodeBase64(t *testing.T) {
	tests := []struct {
		name, inside, want string
		bad                int // -1: it is base64
	}{
		{"nothing", "", "", -1},
		{"only line breaks", `\r\n`, "", -1},
		{"one byte, padded", "eA==", "x", -1},
		{"one byte, not padded", "eA", "x", -1},
		{"two bytes, padded", "eHg=", "xx", -1},
		{"two bytes, not padded", "eHg", "xx", -1},
		{"wrong trailing bits", "eB==", "x", -1},
		{"both alphabets", "-/+_", "\xfb\xff\xbf", -1},
		{"escapes of digits and padding", `\u0065\/8\u003d`, "\x7b\xff", -1},
		{"line breaks everywhere", `\ne\rA\r\n=\u000a=\n`, "x", -1},
		{"a single digit at the end", "eHh4e", "", 5},
		{"half the padding", "eA=", "", 3},
		{"too much padding", "eHg==", "", 4},
		{"padding of a full group", "eHh4=", "", 4},
		{"only padding", "====", "", 0},
		{"digits after padding", "eA==eA==", "", 4},
		{"a space", "eHg ", "", 3},
		{"an escaped tab", `\u0065\t`, "", 1},
		{"an escaped quote", `e\"`, "", 1},
		{"a letter that is no ASCII", `eé`, "", 1},
		{"an escape that is no ASCII", `e\u0141`, "", 1},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			data, bad := decodeBase64([]byte(test.inside))
			if data != nil {
				bad = -1
			}
			if string(data) != test.want || bad != test.bad {
				t.Errorf("decodeBase64 = %q, wrong at %d; want %q, %d", data, bad, test.want, test.bad)
			}
		})
	}
}

func TestManyAttributesAreBounded(t *testing.T) {
	build := func(n int) []byte {
		attributes := make(map[string]string)
		for i := range n {
			attributes[fmt.Sprint(i)] = "v"
		}
		return push(t, attributes, nil)
	}
	if e := mustParse(t, build(maxAttributes)); len(e.Attributes) != maxAttributes || e.Unreadable != "" {
		t.Errorf("%d attributes kept, unreadable %q; want all and none", len(e.Attributes), e.Unreadable)
	}
	e := mustParse(t, build(maxAttributes+1))
	if got, want := e.Unreadable, "more than 1000 attributes"; got != want {
		t.Errorf("Unreadable = %q, want %q", got, want)
	}
}

// push returns the body of a push, as Pub/Sub would encode it.
func push(t testing.TB, attributes map[string]string, data []byte) []byte {
	t.Helper()
	body, err := json.Marshal(map[string]any{
		"message":      map[string]any{"messageId": "1", "attributes": attributes, "data": data},
		"subscription": ordersPush,
	})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// largePayload makes a body of 5 MB.
var largePayload = make([]byte, 5<<20/4*3)

// largeBodies are a body of 5 MB, and bodies of 1 MB of the shapes that cost some part of Parse the most.
func largeBodies(t testing.TB) map[string][]byte {
	const size = 1 << 20
	encoded := base64.StdEncoding.EncodeToString(make([]byte, size/4*3))
	var wrapped strings.Builder
	for line := encoded; line != ""; line = line[min(len(line), 76):] {
		wrapped.WriteString(line[:min(len(line), 76)] + `\r\n`)
	}
	around := func(members string) []byte {
		return []byte(`{"message":{"messageId":"1",` + members + `},"subscription":"s"}`)
	}
	return map[string][]byte{
		"data":                   push(t, nil, largePayload),
		"line-wrapped data":      around(`"data":"` + wrapped.String() + `"`),
		"data in escapes":        around(`"data":"` + strings.Repeat(`\u0041`, size/6) + `"`),
		"data that is no base64": around(`"data":"` + encoded + `?"`),
		"one attribute":          around(`"attributes":{"a":"` + strings.Repeat("v", size) + `"}`),
		"one escaped attribute":  around(`"attributes":{"a":"\n` + strings.Repeat("v", size) + `"}`),
		"many attributes":        around(`"attributes":{` + strings.Repeat(`"a":"",`, size/7) + `"b":""}`),
		"an over-long id":        []byte(`{"message":{"messageId":"\n` + strings.Repeat("1", size) + `"},"subscription":"s"}`),
		"an over-long time":      around(`"publishTime":"\n` + strings.Repeat("1", size) + `"`),
		"many escaped names":     around(strings.Repeat(`"\u0061":1,`, size/11) + `"b":1`),
		"a long escaped name":    around(`"` + strings.Repeat(`\n`, size/2) + `":1`),
		"deep nesting":           around(`"x":` + strings.Repeat(strings.Repeat("[", 9000)+strings.Repeat("]", 9000)+`,"x":`, size/18000) + "1"),
		"invalid JSON":           []byte(`{"message":{"data":"` + encoded + `"}`),
	}
}

func TestParseAllocatesLessThanThreeTimesTheBody(t *testing.T) {
	for name, body := range largeBodies(t) {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e, err := Parse(body)
			runtime.ReadMemStats(&after)
			allocated := after.TotalAlloc - before.TotalAlloc
			t.Logf("%.2f times the body", float64(allocated)/float64(len(body)))
			if allocated >= 3*uint64(len(body)) {
				t.Errorf("Parse allocated %d bytes for a body of %d", allocated, len(body))
			}
			runtime.KeepAlive(e)
			runtime.KeepAlive(err)
		})
	}
}

func BenchmarkParse(b *testing.B) {
	small := body(b, "C002")
	large := push(b, map[string]string{"eventType": "OrderClosed"}, largePayload)
	for _, test := range []struct {
		name string
		body []byte
	}{{"small", small}, {"5MB", large}} {
		b.Run(test.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(int64(len(test.body)))
			for b.Loop() {
				if _, err := Parse(test.body); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
