package receiver_test

import (
	"testing"
)

func TestC103OneOfTwoContentTypesIsTakenEachTime(t *testing.T) {
	w := newWorld(t, anyRoute)
	w.deliver(input(t, "C103")...)
	if n := w.number("SELECT COUNT(*) FROM Payloads WHERE ContentType = 'application/json'"); n != 24 {
		t.Errorf("%d of 24 are stored as application/json", n)
	}
}

func TestC100APackedPayloadIsStoredAsItCameAndReadByTheRoute(t *testing.T) {
	w := newWorld(t, `
  - {name: any, key: payload.workOrderId, engine: e, message: M}`)
	w.deliver(input(t, "C100")...)
	if r := w.one(); r.place() != "RECEIVED" || r.Key == "" || r.Body[:2] != "\x1f\x8b" || r.Attributes["content-encoding"] != "gzip" {
		t.Errorf("%s under the key %q, %d bytes, attributes %v", r.place(), r.Key, len(r.Body), r.Attributes)
	}
}

func TestAByteOrderMarkHidesNoKeyAndIsStored(t *testing.T) {
	w := newWorld(t, `
  - {name: any, key: payload.id, engine: e, message: M}`)
	body := "\uFEFF" + `{"id":"WO-1"}`
	w.deliver(message{ID: "1", Data: []byte(body)}.body(t))
	if r := w.one(); r.place() != "RECEIVED" || r.Key != "WO-1" || r.Body != body {
		t.Errorf("%s under the key %q, stored as %q", r.place(), r.Key, r.Body)
	}
}
