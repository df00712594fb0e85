//go:build engines

package flowable_test

import (
	"embed"
	"fmt"
	"net/http"
	"path"
	"testing"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable"
	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/flowable/flowabletest"
)

//go:embed testdata/events
var listening embed.FS

// listeningWorld is a world with processes that wait for an event of Flowable's registry and for a signal: the two other
// ways by which Flowable takes what happens outside.
func listeningWorld(t *testing.T) *world {
	t.Helper()
	w := newWorld(t, flowabletest.Options{})
	files := map[string][]byte{}
	entries, err := listening.ReadDir("testdata/events")
	for i := 0; err == nil && i < len(entries); i++ {
		name := entries[i].Name()
		files[name], err = listening.ReadFile(path.Join("testdata/events", name))
	}
	if err != nil {
		t.Fatal(err)
	}
	w.client.DeployArchive("listening", files)
	return w
}

// signal throws the signal of the test process, and wants Flowable to call that a success.
func (w *world) signal(t *testing.T) {
	t.Helper()
	status, raw := w.client.Do(http.MethodPost, "/runtime/signals", map[string]any{"signalName": completed}, nil)
	if status != http.StatusNoContent {
		t.Errorf("the signal is answered %d %.200s, want 204", status, raw)
	}
}

// event hands an event about a work order to Flowable's registry, and wants its listener to hear of no failure: it would
// now acknowledge the event.
func (w *world) event(t *testing.T, key string) {
	t.Helper()
	status, raw := w.client.Event("orders", fmt.Sprintf(`{"workOrderId":%q,"completedItems":4812}`, key))
	if status != http.StatusNoContent {
		t.Errorf("the event is answered %d %.200s, want 204", status, raw)
	}
}

// wantReached fails unless an activity has been reached n times in these instances together.
func (w *world) wantReached(t *testing.T, activity string, n int, instances ...string) {
	t.Helper()
	got := 0
	for _, i := range instances {
		got += w.client.Count(fmt.Sprintf("/history/historic-activity-instances?processInstanceId=%s&activityId=%s", i, activity), nil)
	}
	if got != n {
		t.Errorf("%s was reached %d times, want %d", activity, got, n)
	}
}

// TestASignalThatNobodyReceivesIsLost: it is a success to its sender, and nothing is left of it. A message that nobody
// receives is an answer that the relay can act upon, and it is there when the process comes.
func TestASignalThatNobodyReceivesIsLost(t *testing.T) {
	w, key := listeningWorld(t), newKey()
	preparing := flowabletest.Text("stage", "preparing")
	early := w.start("signalled", key, "", preparing)
	w.signal(t)
	w.trigger(t, early, "preparing2")
	w.wantReached(t, "waitForSignal", 1, early)
	w.wantReached(t, "hold2", 0, early)
	w.client.Delete(early)

	e, d := w.engine(ordinary), delivery(key)
	order := w.start("order", key, "", preparing)
	want(t, e.Correlate(t.Context(), d), engine.NotWaiting, "NONE")
	w.trigger(t, order, "preparing")
	want(t, e.Correlate(t.Context(), d), engine.Correlated, "")
	w.wantAdvanced(t, key, 1)
}

// TestASignalReachesEverybodyWhoWaits, whatever order it is about: it has no key.
func TestASignalReachesEverybodyWhoWaits(t *testing.T) {
	w := listeningWorld(t)
	a, b := w.start("signalled", newKey(), ""), w.start("signalled", newKey(), "")
	w.signal(t)
	w.wantReached(t, "hold2", 2, a, b)
}

// TestTheEventRegistryDropsWhatNobodyWaitsFor, and takes an event that several wait for to all of them. Neither is an
// error to the listener that hands it in.
func TestTheEventRegistryDropsWhatNobodyWaitsFor(t *testing.T) {
	w := listeningWorld(t)
	t.Run("one waits", func(t *testing.T) {
		key, other := newKey(), newKey()
		i, j := w.start("listening", key, ""), w.start("listening", other, "")
		w.event(t, key)
		w.wantReached(t, "hold", 1, i)
		w.wantReached(t, "hold", 0, j)
		if got := string(w.client.Variables(i)["completedItems"].Value); got != "4812" {
			t.Errorf("completedItems is %s, want 4812", got)
		}
	})
	t.Run("nobody waits yet", func(t *testing.T) {
		key := newKey()
		i := w.start("listening", key, "", flowabletest.Text("stage", "preparing"))
		w.event(t, key)
		w.trigger(t, i, "preparing")
		w.wantReached(t, "waitForEvent", 1, i)
		w.wantReached(t, "hold", 0, i)
	})
	t.Run("several wait", func(t *testing.T) {
		key := newKey()
		i, j := w.start("listening", key, ""), w.start("listening", key, "")
		w.event(t, key)
		w.wantReached(t, "hold", 2, i, j)
	})
}

// TestAnEventWithInParametersDropsTheMarker: it takes the variables that it names and no other, so that a delivery whose
// answer is lost is not found, and its message is parked.
func TestAnEventWithInParametersDropsTheMarker(t *testing.T) {
	w, key := listeningWorld(t), newKey()
	e := w.engine(ordinary, func(c *flowable.Config) { c.ProcessDefinitionKey = "mapped" })
	i := w.start("mapped", key, "")
	want(t, e.Correlate(t.Context(), delivery(key)), engine.Correlated, "")
	variables := w.client.Variables(i)
	if _, ok := variables[flowable.MarkerPrefix+delivery(key).InboxID]; ok || string(variables["items"].Value) != "4812" {
		t.Errorf("variables %v, want items and no marker", variables)
	}
	wantProbe(t, e, delivery(key), engine.ProbeGone)
}
