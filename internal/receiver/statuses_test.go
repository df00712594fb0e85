package receiver_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/receiver"
)

// fakeStore answers as it is told, and writes down what it was asked.
type fakeStore struct {
	insert []error // one after another; the last one again and again
	known  []inbox.Known
	find   error
	add    error
	calls  []string
}

func (s *fakeStore) Insert(_ context.Context, a *inbox.Arrival) error {
	s.calls = append(s.calls, "insert "+row{Status: string(a.Message.Status), Reason: string(a.Message.Reason)}.place())
	err := s.insert[0]
	if len(s.insert) > 1 {
		s.insert = s.insert[1:]
	}
	return err
}

func (s *fakeStore) Find(context.Context, []string, string) ([]inbox.Known, error) {
	s.calls = append(s.calls, "find")
	return s.known, s.find
}

func (s *fakeStore) Twin(context.Context, *inbox.Message) (inbox.Twin, error) {
	return inbox.Twin{}, nil
}

func (s *fakeStore) AddRedelivery(context.Context, inbox.Redelivery) error {
	s.calls = append(s.calls, "count")
	return s.add
}

func notReady(w *world) http.Handler {
	return receiver.Handler(func(context.Context) (*receiver.Receiver, error) { return nil, errors.New("no credentials") }, w.log.logger())
}

func TestC021EachOutcomeHasItsStatus(t *testing.T) {
	m := message{ID: "1", Data: []byte("{}")}
	stored := inbox.Known{ID: transportID("1"), ContentSHA256: inbox.ContentSHA256(m.Data, nil), TransportKey: transportKey("1")}
	other := inbox.Known{ID: transportID("1"), ContentSHA256: "another", TransportKey: transportKey("1")}
	full := stored
	full.Deliveries = inbox.MaxDeliveries
	exists := fmt.Errorf("insert: %w", inbox.ErrExists)
	refused := fmt.Errorf("insert: %w", inbox.ErrRefused)
	type test struct {
		name  string
		store fakeStore
		body  []byte
		want  int
		calls []string
	}
	tests := []test{
		{"committed", fakeStore{insert: []error{nil}}, nil, 204, []string{"insert RECEIVED"}},
		{"parked on arrival", fakeStore{insert: []error{nil}}, message{ID: "1", Attributes: map[string]string{"park": "me"}}.body(t), 204,
			[]string{"insert PARKED/NO_ROUTE"}},
		{"unreadable", fakeStore{insert: []error{nil}}, input(t, "C005")[4], 204, []string{"insert PARKED/UNREADABLE"}},
		{"a duplicate, whatever the status of its row: nothing of it is written", fakeStore{insert: []error{exists}, known: []inbox.Known{stored}}, nil, 204,
			[]string{"insert RECEIVED", "find", "count"}},
		{"a duplicate of a duplicate of many", fakeStore{insert: []error{exists}, known: []inbox.Known{full}}, nil, 204,
			[]string{"insert RECEIVED", "find"}},
		{"a duplicate that cannot be counted", fakeStore{insert: []error{exists}, known: []inbox.Known{stored}, add: errors.New("unavailable")}, nil, 204,
			[]string{"insert RECEIVED", "find", "count"}},
		{"other content under the identity", fakeStore{insert: []error{exists, nil}, known: []inbox.Known{other}}, nil, 204,
			[]string{"insert RECEIVED", "find", "insert PARKED/DEDUPE_CONFLICT"}},
		{"other content that cannot be stored", fakeStore{insert: []error{exists, errors.New("unavailable")}, known: []inbox.Known{other}}, nil, 503,
			[]string{"insert RECEIVED", "find", "insert PARKED/DEDUPE_CONFLICT"}},
		{"other content that is refused", fakeStore{insert: []error{exists, refused, exists, nil}, known: []inbox.Known{other}}, nil, 204,
			[]string{"insert RECEIVED", "find", "insert PARKED/DEDUPE_CONFLICT", "insert PARKED/UNREADABLE", "find", "insert PARKED/DEDUPE_CONFLICT"}},
		{"other content that is there and is not to be found", fakeStore{insert: []error{exists}, known: []inbox.Known{other}}, nil, 503,
			[]string{"insert RECEIVED", "find", "insert PARKED/DEDUPE_CONFLICT", "find", "insert PARKED/DEDUPE_CONFLICT"}},
		{"a duplicate that is not to be found", fakeStore{insert: []error{exists}}, nil, 503, []string{"insert RECEIVED", "find"}},
		{"a duplicate that cannot be looked up", fakeStore{insert: []error{exists}, find: errors.New("unavailable")}, nil, 503,
			[]string{"insert RECEIVED", "find"}},
		{"refused", fakeStore{insert: []error{refused, nil}}, nil, 204, []string{"insert RECEIVED", "insert PARKED/UNREADABLE"}},
		{"refused in every form", fakeStore{insert: []error{refused}}, nil, 503, []string{"insert RECEIVED", "insert PARKED/UNREADABLE"}},
		{"refused, then out of reach", fakeStore{insert: []error{refused, errors.New("unavailable")}}, nil, 503,
			[]string{"insert RECEIVED", "insert PARKED/UNREADABLE"}},
		{"over the size limit", fakeStore{insert: []error{nil}}, message{ID: "1", Data: make([]byte, inbox.MaxInlinePayload+1)}.body(t), 413, nil},
		{"unreadable and over the size limit", fakeStore{insert: []error{nil}},
			[]byte(`{"message":{"messageId":"1","data":"@` + strings.Repeat("x", inbox.MaxInlinePayload) + `"}}`), 413, nil},
		{"no envelope", fakeStore{insert: []error{nil}}, []byte(`{"a":1}`), 400, nil},
		{"no JSON", fakeStore{insert: []error{nil}}, []byte(`{"a":`), 400, nil},
		{"no message id", fakeStore{insert: []error{nil}}, []byte(`{"message":{"data":""}}`), 400, nil},
	}
	for _, err := range []error{
		status.Error(codes.Unavailable, "x"), status.Error(codes.DeadlineExceeded, "x"), status.Error(codes.ResourceExhausted, "x"),
		status.Error(codes.Aborted, "x"), status.Error(codes.PermissionDenied, "x"), status.Error(codes.NotFound, "x"),
		status.Error(codes.FailedPrecondition, "x"), status.Error(codes.Unauthenticated, "x"), status.Error(codes.Unimplemented, "x"),
		status.Error(codes.Canceled, "x"), status.Error(codes.Unknown, "x"), status.Error(codes.DataLoss, "x"),
		context.Canceled, context.DeadlineExceeded, errors.New("the commit was answered without a commit timestamp"),
	} {
		tests = append(tests, test{"the commit fails: " + err.Error(), fakeStore{insert: []error{err}}, nil, 503, []string{"insert RECEIVED"}})
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{t: t, log: &logBuffer{}, router: router(t, `
  - {name: any, match: '!has(attributes.park)', engine: e, message: M}`)}
			body := tt.body
			if body == nil {
				body = m.body(t)
			}
			store := tt.store
			got := post(w.endpointOf(w.receiver(&store), noAuth(t)), body)
			if got.Code != tt.want {
				t.Errorf("status %d, want %d", got.Code, tt.want)
			}
			if diff := cmp.Diff(tt.calls, store.calls); diff != "" {
				t.Error(diff)
			}
			checkAnswer(t, got)
			severity := map[int]string{204: "", 503: "ERROR"}[tt.want]
			if last := w.log.entries(t); severity != "" && last[len(last)-1]["severity"] != severity {
				t.Errorf("logged as %v", last[len(last)-1]["severity"])
			}
		})
	}
}

// checkAnswer fails if an answer breaks a rule that holds for all: 204 is the only success, and has no body; the others
// say why, in a line.
func checkAnswer(t *testing.T, got *httptest.ResponseRecorder) {
	t.Helper()
	body := got.Body.String()
	switch {
	case got.Code == 204 && (body != "" || got.Header().Get("Content-Type") != ""):
		t.Errorf("204 has the body %q", body)
	case got.Code < 400 && got.Code != 204:
		t.Errorf("%d is neither the success nor a refusal", got.Code)
	case got.Code >= 400 && (len(body) < 5 || strings.Count(body, "\n") != 1):
		t.Errorf("%d says %q", got.Code, body)
	}
}

func TestC021ARequestThatIsNoneForUsReachesNoStore(t *testing.T) {
	body := string(message{ID: "1"}.body(t))
	tests := []struct {
		name, method, path string
		want               int
	}{
		{"another path", "POST", "/push", 404},
		{"the path twice", "POST", "//", 404},
		{"GET", "GET", "/", 405},
		{"HEAD", "HEAD", "/", 405},
		{"PUT", "PUT", "/", 405},
		{"DELETE", "DELETE", "/", 405},
		{"OPTIONS", "OPTIONS", "/", 405},
		{"a query is no path", "POST", "/?x=1", 204},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := &world{t: t, log: &logBuffer{}, router: router(t, anyRoute)}
			store := &fakeStore{insert: []error{nil}}
			got := serve(w.endpointOf(w.receiver(store), noAuth(t)), httptest.NewRequest(tt.method, tt.path, strings.NewReader(body)))
			if got.Code != tt.want || (got.Code == 405) != (got.Header().Get("Allow") == "POST") {
				t.Errorf("got %d, Allow %q", got.Code, got.Header().Get("Allow"))
			}
			if (tt.want == 204) != slices.Equal(store.calls, []string{"insert RECEIVED"}) {
				t.Errorf("the store was asked: %v", store.calls)
			}
			checkAnswer(t, got)
		})
	}
}

// storeFunc is a store whose inserts are the function.
type storeFunc func(ctx context.Context) error

func (f storeFunc) Insert(ctx context.Context, _ *inbox.Arrival) error { return f(ctx) }

func (storeFunc) Find(context.Context, []string, string) ([]inbox.Known, error) { return nil, nil }

func (storeFunc) Twin(context.Context, *inbox.Message) (inbox.Twin, error) { return inbox.Twin{}, nil }

func (storeFunc) AddRedelivery(context.Context, inbox.Redelivery) error { return nil }

func TestAStoreThatHangsIsGivenUpBeforeEverySensibleAcknowledgementDeadline(t *testing.T) {
	w := &world{t: t, log: &logBuffer{}, router: router(t, anyRoute)}
	var deadline time.Time
	rec := w.receiver(storeFunc(func(ctx context.Context) error {
		deadline, _ = ctx.Deadline()
		return errors.New("unavailable")
	}))
	begin := time.Now()
	if got := post(w.endpointOf(rec, noAuth(t)), message{ID: "1"}.body(t)); got.Code != 503 {
		t.Errorf("status %d", got.Code)
	}
	if within := deadline.Sub(begin); within <= 0 || within > time.Minute {
		t.Errorf("the store has %v", within)
	}
}
