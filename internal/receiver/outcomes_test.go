package receiver_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"

	"cloud.google.com/go/spanner"
	"cloud.google.com/go/spanner/apiv1/spannerpb"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/rpctap"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func TestANewMessageCostsOneRoundTripAndARepeatedOneAtMostThree(t *testing.T) {
	first, second := message{ID: "1", Data: []byte("a")}, message{ID: "1", Data: []byte("b")}
	parked := message{ID: "2", Attributes: map[string]string{"park": "me"}}
	unreadable := []byte(`{"message":{"messageId":"3","data":"@"},"subscription":"s"}`)
	tests := []struct {
		name   string
		before [][]byte
		body   []byte
		want   map[string]int
	}{
		{"new", nil, first.body(t), map[string]int{"Commit": 1}},
		{"new and parked", nil, parked.body(t), map[string]int{"Commit": 1}},
		{"new and unreadable", nil, unreadable, map[string]int{"Commit": 1}},
		{"a redelivery", [][]byte{first.body(t)}, first.body(t), map[string]int{"Commit": 2, "ExecuteStreamingSql": 1}},
		{"a redelivery of a parked one", [][]byte{parked.body(t)}, parked.body(t), map[string]int{"Commit": 2, "ExecuteStreamingSql": 1}},
		{"a redelivery of an unreadable one", [][]byte{unreadable}, unreadable, map[string]int{"Commit": 2, "ExecuteStreamingSql": 1}},
		{"a contradiction", [][]byte{first.body(t)}, second.body(t), map[string]int{"Commit": 2, "ExecuteStreamingSql": 1}},
		{"a redelivery of a contradiction", [][]byte{first.body(t), second.body(t)}, second.body(t), map[string]int{"Commit": 2, "ExecuteStreamingSql": 1}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, `
  - {name: any, match: '!has(attributes.park)', engine: e, message: M}`)
			w.postAll(append([][]byte{message{ID: "warm-up"}.body(t)}, tt.before...))
			w.tap.Reset()
			if got := w.post(tt.body); got != 204 {
				t.Errorf("status %d", got)
			}
			if diff := cmp.Diff(tt.want, w.tap.Counts()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestACommitWhoseAnswerIsLostIsFoundByItsRedelivery(t *testing.T) {
	for _, code := range []codes.Code{codes.Unknown, codes.DeadlineExceeded, codes.Canceled, codes.PermissionDenied, codes.Internal, codes.FailedPrecondition} {
		t.Run(code.String(), func(t *testing.T) {
			w := newWorld(t, anyRoute)
			w.tap.LoseNth("Commit", 1, rpctap.Error(code))
			body := message{ID: "1", Data: []byte("{}")}.body(t)
			if diff := cmp.Diff([]int{503, 204}, w.postAll([][]byte{body, body})); diff != "" {
				t.Error(diff)
			}
			if r := w.one(); r.Status != "RECEIVED" || r.Deliveries != 1 {
				t.Errorf("%s with %d redeliveries", r.place(), r.Deliveries)
			}
		})
	}
}

// A code that otherwise stands for a refused value can belong to a commit that was executed.
func TestACommitThatLooksRefusedAndWasNotIsOneRow(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OutOfRange} {
		for name, routes := range map[string]string{"by message id": anyRoute, "by event id": byEvent} {
			t.Run(code.String()+" "+name, func(t *testing.T) {
				w := newWorld(t, routes)
				w.tap.LoseNth("Commit", 1, rpctap.Error(code))
				body := tranche(t, "a")
				if diff := cmp.Diff([]int{204, 204}, w.postAll([][]byte{body, body})); diff != "" {
					t.Error(diff)
				}
				if r := w.one(); r.Status != "RECEIVED" {
					t.Errorf("the row is %s", r.place())
				}
			})
		}
	}
}

func TestACommitThatTheClientRepeatsIsOneRow(t *testing.T) {
	w := newWorld(t, anyRoute)
	w.tap.LoseNth("Commit", 1, rpctap.Error(codes.Unavailable))
	if got := w.post(message{ID: "1"}.body(t)); got != 204 {
		t.Errorf("status %d", got)
	}
	if r := w.one(); r.Status != "RECEIVED" {
		t.Errorf("the row is %s", r.place())
	}
	if got := w.tap.Count("Commit"); got < 2 {
		t.Fatalf("%d commits were sent: the client did not repeat the lost one", got)
	}
}

func TestACommitWithoutATimestampIsNoProof(t *testing.T) {
	w := newWorld(t, anyRoute)
	w.tap.After("Commit", func(_ context.Context, n int, _, reply any, err error) error {
		if n == 1 {
			reply.(*spannerpb.CommitResponse).CommitTimestamp = nil
		}
		return err
	})
	body := message{ID: "1"}.body(t)
	if diff := cmp.Diff([]int{503, 204}, w.postAll([][]byte{body, body})); diff != "" {
		t.Error(diff)
	}
	w.one()
}

func TestARefusedMessageIsKeptAsItCameAndDoesNotLoop(t *testing.T) {
	for _, code := range []codes.Code{codes.InvalidArgument, codes.OutOfRange} {
		for name, routes := range map[string]string{"by message id": anyRoute, "by event id": byEvent} {
			t.Run(code.String()+" "+name, func(t *testing.T) {
				w := newWorld(t, routes)
				// Its redelivery is refused no longer (the third commit is its first), and the next one is again.
				refuse := map[int]bool{1: true, 5: true}
				w.tap.Before("Commit", func(_ context.Context, n int, _ any) error {
					if refuse[n] {
						return rpctap.Error(code)
					}
					return nil
				})
				body := tranche(t, "a")
				if got := w.post(body); got != 204 {
					t.Fatalf("status %d", got)
				}
				checkRow(t, unreadable("m-a", body, "the database refused its values"), w.one())
				if diff := cmp.Diff([]int{204, 204}, w.postAll([][]byte{body, body})); diff != "" {
					t.Error(diff)
				}
				want := unreadable("m-a", body, "the database refused its values")
				want.Deliveries = 2
				checkRow(t, want, w.one())
				if n := w.count("Lanes"); n != 0 {
					t.Errorf("%d lanes know of it", n)
				}
			})
		}
	}
}

// A fault of the server, or a key of the database that is away, says nothing about a message, however often it comes.
func TestAFaultOfTheDatabaseIsNoRefusalOfAMessage(t *testing.T) {
	rst := status.Error(codes.Internal, "stream terminated by RST_STREAM with error code: INTERNAL_ERROR")
	for name, c := range map[string]struct {
		fault error
		times int
		want  []int
	}{
		"an internal error":               {rpctap.Error(codes.Internal), 1, []int{503, 204}},
		"two internal errors":             {rpctap.Error(codes.Internal), 2, []int{503, 503, 204}},
		"a connection that was cut":       {rst, 1, []int{204}}, // repeated within the push
		"two connections that were cut":   {rst, 2, []int{503, 204}},
		"a key that is away":              {status.Error(codes.FailedPrecondition, "KMS key required by the Spanner resource is not accessible."), 1, []int{503, 204}},
		"a key that is away for a moment": {rpctap.Error(codes.FailedPrecondition), 3, []int{503, 503, 503, 204}},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, byEvent)
			w.tap.Before("Commit", func(_ context.Context, n int, _ any) error {
				if n <= c.times {
					return c.fault
				}
				return nil
			})
			body := tranche(t, "a")
			for i, want := range c.want {
				if got := w.post(body); got != want {
					t.Errorf("delivery %d: answered %d, want %d", i+1, got, want)
				}
				if rows := w.count("Messages"); (rows == 1) != (want == 204) {
					t.Errorf("delivery %d: %d rows", i+1, rows)
				}
			}
			if r := w.one(); r.place() != "RECEIVED" || r.Route == "" {
				t.Errorf("the row is %s of route %q", r.place(), r.Route)
			}
		})
	}
}

func TestAMessageThatIsRefusedInEveryFormIsNotAcknowledged(t *testing.T) {
	w := newWorld(t, anyRoute)
	w.tap.FailAll("Commit", rpctap.Error(codes.InvalidArgument))
	if got := w.post(message{ID: "1"}.body(t)); got != 503 {
		t.Errorf("status %d", got)
	}
	if n := w.count("Messages"); n != 0 {
		t.Errorf("%d rows", n)
	}
	if got := w.tap.Count("Commit"); got != 2 {
		t.Errorf("%d commits, want the message's and the safe form's", got)
	}
}

func TestAFailedLookAtARepeatedMessageIsNotAcknowledged(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := message{ID: "1"}.body(t)
	w.post(body)
	w.tap.Reset()
	w.tap.FailNth("ExecuteStreamingSql", 1, rpctap.Error(codes.PermissionDenied))
	if diff := cmp.Diff([]int{503, 204}, w.postAll([][]byte{body, body})); diff != "" {
		t.Error(diff)
	}
	w.one()
}

func TestARedeliveryThatCannotBeCountedIsAcknowledged(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := message{ID: "1"}.body(t)
	w.post(body)
	w.tap.Reset()
	w.tap.FailNth("Commit", 2, rpctap.Error(codes.PermissionDenied))
	if got := w.post(body); got != 204 {
		t.Errorf("status %d", got)
	}
	if r := w.one(); r.Deliveries != 0 {
		t.Errorf("%d redeliveries", r.Deliveries)
	}
}

// A row that is deleted (by hand, or by its age) between the commit that meets it and the look at it.
func TestAMessageWhoseRowGoesAwayMeanwhileIsStoredByTheNextDelivery(t *testing.T) {
	w := newWorld(t, anyRoute)
	body := message{ID: "1"}.body(t)
	w.post(body)
	w.tap.Reset()
	w.tap.Before("ExecuteStreamingSql", func(ctx context.Context, n int, _ any) error {
		_, err := w.client.Apply(ctx, []*spanner.Mutation{spanner.Delete("Messages", spanner.AllKeys())}, spanner.ApplyAtLeastOnce())
		return err
	})
	if diff := cmp.Diff([]int{503, 204}, w.postAll([][]byte{body, body})); diff != "" {
		t.Error(diff)
	}
	w.one()
}

func TestADatabaseWithoutItsTablesOrNotThereIsNotAcknowledgedAndLoggedAsAnError(t *testing.T) {
	empty := emulatortest.DatabaseWith(t)
	for name, database := range map[string]string{"no tables": empty, "no database": empty + "x"} {
		t.Run(name, func(t *testing.T) {
			w := &world{t: t, db: database, log: &logBuffer{}, router: router(t, anyRoute)}
			store, err := spannerstore.Open(t.Context(), database, nil, wiring.NewID, emulatortest.ClientOptions(t)...)
			if err != nil {
				t.Fatal(err)
			}
			defer store.Close()
			w.store = store
			if got := w.post(message{ID: "1"}.body(t)); got != 503 {
				t.Errorf("status %d", got)
			}
			last := w.log.entries(t)
			if severity := last[len(last)-1]["severity"]; severity != "ERROR" {
				t.Errorf("logged as %v", severity)
			}
		})
	}
}

// watched is an answer that says whether anything of it was written.
type watched struct {
	*httptest.ResponseRecorder
	written atomic.Bool
}

func (w *watched) WriteHeader(status int) {
	w.written.Store(true)
	w.ResponseRecorder.WriteHeader(status)
}

func (w *watched) Write(p []byte) (int, error) {
	w.written.Store(true)
	return w.ResponseRecorder.Write(p)
}

func TestC022NoStatusIsWrittenBeforeTheCommitHasReturned(t *testing.T) {
	tests := []struct {
		name string
		fail error
		want int
		rows int64
	}{
		{"a commit that succeeds", nil, 204, 1},
		{"a commit that fails", rpctap.Error(codes.Unknown), 503, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t, anyRoute)
			before, after := w.tap.HoldNth("Commit", 1), w.tap.HoldAnswerNth("Commit", 1)
			if tt.fail != nil {
				w.tap.FailNth("Commit", 1, tt.fail)
				after.Release()
			}
			answer := &watched{ResponseRecorder: httptest.NewRecorder()}
			done := make(chan struct{})
			h := w.endpoint()
			r := httptest.NewRequest(http.MethodPost, "/", strings.NewReader(string(input(t, "C002")[0])))
			go func() {
				defer close(done)
				h.ServeHTTP(answer, r)
			}()
			for _, gate := range []*rpctap.Gate{before, after} {
				if tt.fail != nil && gate == after {
					continue
				}
				if err := gate.Wait(t.Context()); err != nil {
					t.Fatal(err)
				}
				if answer.written.Load() {
					t.Error("something is written while the commit is under way")
				}
				gate.Release()
			}
			<-done
			if answer.Code != tt.want {
				t.Errorf("status %d, want %d", answer.Code, tt.want)
			}
			if n := w.count("Messages"); n != tt.rows {
				t.Errorf("%d rows, want %d", n, tt.rows)
			}
			checkNoneLeft(t)
		})
	}
}

// The caller goes away while the commit's answer is on its way, as when the process is killed: the row is there.
func TestC022ADeliveryCutOffAfterItsCommitIsFoundByItsRedelivery(t *testing.T) {
	w := newWorld(t, anyRoute)
	gate := w.tap.HoldAnswerNth("Commit", 1)
	ctx, cancel := context.WithCancel(t.Context())
	body := input(t, "C002")[0]
	done := make(chan int)
	h := w.endpoint()
	go func() {
		done <- serve(h, httptest.NewRequestWithContext(ctx, http.MethodPost, "/", strings.NewReader(string(body)))).Code
	}()
	if err := gate.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
	cancel()
	if got := <-done; got != 503 {
		t.Errorf("cut off: status %d", got)
	}
	checkNoneLeft(t)
	if got := w.post(body); got != 204 {
		t.Errorf("redelivered: status %d", got)
	}
	if r := w.one(); r.Deliveries != 1 {
		t.Errorf("%d redeliveries", r.Deliveries)
	}
}

func TestNothingOfARequestOutlivesItsAnswer(t *testing.T) {
	w := newWorld(t, byEvent)
	for _, body := range [][]byte{tranche(t, "a"), tranche(t, "a"), tranche(t, "b"), tranche(t, "b"), []byte("x"), input(t, "C005")[4]} {
		w.post(body)
		checkNoneLeft(t)
	}
}

// checkNoneLeft fails if a goroutine still runs the receiver's or the store's code, or was started by it.
func checkNoneLeft(t *testing.T) {
	t.Helper()
	stacks := make([]byte, 4<<20)
	stacks = stacks[:runtime.Stack(stacks, true)]
	for _, stack := range strings.Split(string(stacks), "\n\n") {
		for _, code := range []string{"internal/receiver.", "internal/receiver/receiver.go", "internal/receiver/handler.go", "internal/spannerstore."} {
			if strings.Contains(stack, code) {
				t.Errorf("left behind: %.600s", stack)
				break
			}
		}
	}
}

func TestAReceiverThatIsNotReadyIsNotAcknowledged(t *testing.T) {
	w := newWorld(t, anyRoute)
	h := wiring.Endpoint(notReady(w), noAuth(t), w.log.logger())
	if got := post(h, message{ID: "1"}.body(t)); got.Code != 503 {
		t.Errorf("got %d %q", got.Code, got.Body)
	}
	if got := fmt.Sprint(w.count("Messages"), strings.Contains(w.log.String(), `"severity":"ERROR"`)); got != "0 true" {
		t.Errorf("rows, logged: %s", got)
	}
}
