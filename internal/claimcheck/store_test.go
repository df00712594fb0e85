package claimcheck_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"cloud.google.com/go/storage"

	"github.com/pubsub-inbox/pubsub-inbox/internal/claimcheck"
	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators/emulatortest"
	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

func TestMain(m *testing.M) { emulatortest.Main(m) }

const owner = "0123456789abcdef0123456789abcdef"

func sum(b []byte) string {
	s := sha256.Sum256(b)
	return hex.EncodeToString(s[:])
}

func world(t *testing.T) (*emulatortest.Bucket, *claimcheck.Store) {
	t.Helper()
	b := emulatortest.NewBucket(t)
	s := claimcheck.New(b.Name, b.Options()...)
	t.Cleanup(func() { _ = s.Close() })
	return b, s
}

func within(t *testing.T, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func put(t *testing.T, s *claimcheck.Store, body []byte) inbox.Object {
	t.Helper()
	o, err := s.Put(within(t, time.Minute), owner, sum(body), body, "text/plain")
	if err != nil {
		t.Fatal(err)
	}
	return o
}

func TestWhatIsPutIsReadByteForByte(t *testing.T) {
	b, s := world(t)
	for _, size := range []int{0, 1, 1 << 20, 2_621_441, 10_000_000} {
		body := bytes.Repeat([]byte{0, 1, 0xff, '\n'}, size/4+1)[:size]
		b.Calls()
		o := put(t, s, body)
		if calls := b.Calls(); len(calls) != 1 {
			t.Errorf("%d bytes took the requests %v, want one", size, calls)
		}
		if o.Bucket != b.Name || o.Name != owner+"/"+sum(body) || o.Bytes != int64(size) || o.Generation == 0 || o.SHA256 != sum(body) {
			t.Errorf("the object is %+v", o)
		}
		parsed, err := inbox.ParseLocation(o.Location())
		if err != nil || parsed != o {
			t.Errorf("%s reads as %+v, %v", o.Location(), parsed, err)
		}
		got, err := s.Read(within(t, time.Minute), parsed, o.Bytes)
		if err != nil || !bytes.Equal(got, body) {
			t.Errorf("%d bytes are read as %d, %v", size, len(got), err)
		}
	}
	for _, o := range b.Objects() {
		if !o.CustomTime.IsZero() || o.ContentType != "text/plain" {
			t.Errorf("%s has custom time %v and content type %q", o.Name, o.CustomTime, o.ContentType)
		}
	}
}

func TestAnEqualObjectThatIsThereIsTaken(t *testing.T) {
	b, s := world(t)
	first := put(t, s, []byte("report"))
	if again := put(t, s, []byte("report")); again != first {
		t.Errorf("the second time it is %+v, want %+v", again, first)
	}
	if n := len(b.Objects()); n != 1 {
		t.Errorf("%d objects, want 1", n)
	}
}

func TestALostAnswerToOurOwnUploadIsSuccess(t *testing.T) {
	b, s := world(t)
	var lost atomic.Bool
	b.Lose(func(r *http.Request, status int) bool {
		return r.Method == http.MethodPost && status == http.StatusOK && lost.CompareAndSwap(false, true)
	})
	o := put(t, s, []byte("report")) // the retry meets the precondition that the first try has taken away
	if !lost.Load() {
		t.Fatal("no answer was lost")
	}
	if got := b.Objects(); len(got) != 1 || got[0].Generation != o.Generation {
		t.Errorf("objects %v, want the one of generation %d", got, o.Generation)
	}
}

func TestOtherContentUnderItsNameIsNeverTaken(t *testing.T) {
	b, s := world(t)
	body := []byte("report")
	for _, other := range []string{"retort", "longer than the report"} {
		b.Write(owner+"/"+sum(body), []byte(other), nil)
		if o, err := s.Put(within(t, time.Minute), owner, sum(body), body, ""); !errors.Is(err, inbox.ErrObjectChanged) {
			t.Errorf("got %+v, %v, want that other content is there", o, err)
		}
	}
}

func TestAFinishedObjectIsSaidToBeSo(t *testing.T) {
	_, s := world(t)
	o := put(t, s, []byte("report"))
	at := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
	if err := s.Finish(within(t, time.Minute), o, at); err != nil {
		t.Fatal(err)
	}
	found, err := s.Stat(within(t, time.Minute), o)
	if err != nil || !found.CustomTime.Equal(at) {
		t.Fatalf("custom time %v, %v, want %v", found.CustomTime, err, at)
	}
	again, err := s.Put(within(t, time.Minute), owner, o.SHA256, []byte("report"), "text/plain")
	if !errors.Is(err, inbox.ErrObjectFinished) || again != o {
		t.Errorf("got %+v, %v, want %+v and that it is finished", again, err, o)
	}
	renewed, err := s.Renew(within(t, time.Minute), again)
	if err != nil || renewed.Generation == o.Generation {
		t.Fatalf("renewed to %+v, %v, want another generation", renewed, err)
	}
	found, err = s.Stat(within(t, time.Minute), renewed)
	if err != nil || !found.CustomTime.IsZero() || found.ContentType != "text/plain" {
		t.Errorf("after that it is %+v, %v, want it without a custom time", found, err)
	}
	if got, err := s.Read(within(t, time.Minute), renewed, 100); err != nil || string(got) != "report" {
		t.Errorf("it reads %q, %v", got, err)
	}
	// The relay that had finished the message may only now come to mark its object.
	if err := s.Finish(within(t, time.Minute), o, at); err != nil {
		t.Error(err)
	}
	if found, err := s.Stat(within(t, time.Minute), renewed); err != nil || !found.CustomTime.IsZero() {
		t.Errorf("a late mark reached the new generation: %+v, %v", found, err)
	}
	// Whoever comes from the old generation too, or again because the new one was not written down, gets the same.
	again, err = s.Renew(within(t, time.Minute), o)
	if err != nil || again != renewed {
		t.Errorf("renewed again to %+v, %v, want %+v", again, err, renewed)
	}
	if err := s.Finish(within(t, time.Minute), renewed, at); err != nil {
		t.Error(err)
	}
	third, err := s.Renew(within(t, time.Minute), o)
	if found, statErr := s.Stat(within(t, time.Minute), third); err != nil || statErr != nil || third.Generation == renewed.Generation || !found.CustomTime.IsZero() {
		t.Errorf("renewed once it was marked: %+v, %v, %v", found, err, statErr)
	}
}

func TestRenewTakesNothingElse(t *testing.T) {
	b, s := world(t)
	o := put(t, s, []byte("report"))
	for _, other := range []string{"retort", "longer than the report"} {
		b.Write(o.Name, []byte(other), nil)
		if got, err := s.Renew(within(t, time.Minute), o); !errors.Is(err, inbox.ErrObjectChanged) {
			t.Errorf("renewed to %+v, %v, want that other content is there", got, err)
		}
	}
	b.Delete(o.Name)
	if got, err := s.Renew(within(t, time.Minute), o); !errors.Is(err, inbox.ErrObjectMissing) {
		t.Errorf("renewed to %+v, %v, want that it is gone", got, err)
	}
}

func TestFinishIsContentWithWhatIsGone(t *testing.T) {
	b, s := world(t)
	o := put(t, s, []byte("report"))
	b.Delete(o.Name)
	if err := s.Finish(within(t, time.Minute), o, time.Now()); err != nil {
		t.Error(err)
	}
}

func TestWhatCannotBeHadIsToldApart(t *testing.T) {
	b, s := world(t)
	body := []byte(strings.Repeat("x", 1000))
	zipped := func(content []byte) []byte {
		var z bytes.Buffer
		w := gzip.NewWriter(&z)
		_, _ = w.Write(content)
		_ = w.Close()
		return z.Bytes()
	}
	asGzip := func(w *storage.Writer) { w.ContentEncoding = "gzip" }
	gen := b.Write("plain", body, nil)
	zip := b.Write("zip", zipped(body), asGzip)
	bomb := b.Write("bomb", zipped(make([]byte, 1<<20)), asGzip)
	lie := b.Write("lie", body, asGzip)
	broken := b.Write("broken", zipped(body)[:20], asGzip)
	old := b.Write("replaced", []byte("old"), nil)
	b.Write("replaced", []byte("new"), nil)
	at := func(name string, generation int64, hash string) inbox.Object {
		return inbox.Object{Bucket: b.Name, Name: name, Generation: generation, SHA256: hash}
	}
	for _, tt := range []struct {
		name   string
		o      inbox.Object
		status int
		want   error // nil: the body
	}{
		{"as it is", at("plain", gen, ""), 0, nil},
		{"with its hash", at("plain", gen, sum(body)), 0, nil},
		{"with another hash", at("plain", gen, sum([]byte("y"))), 0, inbox.ErrObjectChanged},
		{"compressed, with the hash of its content", at("zip", zip, sum(body)), 0, nil},
		{"compressed, with the hash of what is stored", at("zip", zip, sum(zipped(body))), 0, nil},
		{"compressed, with another hash", at("zip", zip, sum([]byte("y"))), 0, inbox.ErrObjectChanged},
		{"it unpacks to too much", at("bomb", bomb, ""), 0, inbox.ErrObjectTooLarge},
		{"it only says that it is compressed", at("lie", lie, ""), 0, inbox.ErrObjectChanged},
		{"it is cut off", at("broken", broken, ""), 0, inbox.ErrObjectChanged},
		{"not there", at("nothing", 1, ""), 0, inbox.ErrObjectMissing},
		{"no longer there", at("replaced", old, ""), 0, inbox.ErrObjectMissing},
		{"forbidden", at("plain", gen, ""), 403, inbox.ErrObjectForbidden},
		{"not logged in", at("plain", gen, ""), 401, inbox.ErrObjectForbidden},
	} {
		t.Run(tt.name, func(t *testing.T) {
			b.Refuse(tt.status)
			defer b.Refuse(0)
			got, err := s.Read(within(t, time.Minute), tt.o, 10_000)
			if !errors.Is(err, tt.want) || (tt.want == nil && !bytes.Equal(got, body)) {
				t.Errorf("%d bytes, %v, want %v", len(got), err, tt.want)
			}
		})
	}
	if _, err := s.Read(within(t, time.Minute), at("plain", gen, ""), 999); !errors.Is(err, inbox.ErrObjectTooLarge) {
		t.Errorf("one byte over the limit: %v", err)
	}
	if got, err := s.Read(within(t, time.Minute), at("plain", gen, ""), 1000); err != nil || len(got) != 1000 {
		t.Errorf("at the limit: %d bytes, %v", len(got), err)
	}
	if _, err := s.Stat(within(t, time.Minute), at("replaced", old, "")); !errors.Is(err, inbox.ErrObjectChanged) {
		t.Errorf("a replaced object: %v", err)
	}
	if _, err := s.Stat(within(t, time.Minute), at("nothing", 0, "")); !errors.Is(err, inbox.ErrObjectMissing) {
		t.Errorf("a missing object: %v", err)
	}
}

func TestAnOutageIsNeitherMissingNorForbidden(t *testing.T) {
	b, s := world(t)
	o := put(t, s, []byte("report"))
	for _, status := range []int{429, 500, 503} {
		b.Refuse(status)
		for name, call := range map[string]func(ctx context.Context) error{
			"put": func(ctx context.Context) error {
				_, err := s.Put(ctx, owner, sum([]byte("x")), []byte("x"), "")
				return err
			},
			"read": func(ctx context.Context) error { _, err := s.Read(ctx, o, 100); return err },
			"stat": func(ctx context.Context) error { _, err := s.Stat(ctx, o); return err },
		} {
			err := call(within(t, 300*time.Millisecond))
			if err == nil || errors.Is(err, inbox.ErrObjectMissing) || errors.Is(err, inbox.ErrObjectForbidden) || errors.Is(err, inbox.ErrObjectChanged) {
				t.Errorf("%s answered %d: %v", name, status, err)
			}
		}
	}
}

func TestWhatIsListedGoesOnWhereItEnded(t *testing.T) {
	b, s := world(t)
	for _, name := range []string{"a", "b/1", "b/2", "b/3", "c"} {
		b.Write(name, []byte(name), nil)
	}
	var got []string
	last := ""
	for pages := 0; pages < 10; pages++ {
		var err error
		last, err = s.List(within(t, time.Minute), b.Name, "b/", last, 2, func(o inbox.FoundObject) error {
			got = append(got, o.Name)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if last == "" {
			break
		}
	}
	if strings.Join(got, " ") != "b/1 b/2 b/3" {
		t.Errorf("listed %v", got)
	}
}

// once has f answer one request, the first that f says it has answered.
func once(b *emulatortest.Bucket, f func(w http.ResponseWriter, r *http.Request) bool) {
	var done atomic.Bool
	b.Answer(func(w http.ResponseWriter, r *http.Request) bool {
		return !done.Load() && f(w, r) && done.CompareAndSwap(false, true)
	})
}

func TestWhatCloudStorageCannotDoAtTheMomentIsRepeated(t *testing.T) {
	b, s := world(t)
	refuse := func(status int) {
		once(b, func(w http.ResponseWriter, _ *http.Request) bool {
			http.Error(w, http.StatusText(status), status)
			return true
		})
	}
	for _, status := range []int{429, 503} {
		refuse(status)
		o := put(t, s, []byte(http.StatusText(status)))
		refuse(status)
		at := time.Date(2026, 3, 2, 8, 0, 0, 0, time.UTC)
		if err := s.Finish(within(t, time.Minute), o, at); err != nil {
			t.Errorf("marked after %d: %v", status, err)
		}
		if found, err := s.Stat(within(t, time.Minute), o); err != nil || !found.CustomTime.Equal(at) {
			t.Errorf("after %d its custom time is %v, %v", status, found.CustomTime, err)
		}
	}
}

func TestAnUploadThatIsDamagedOnItsWayIsNotKept(t *testing.T) {
	b, s := world(t)
	b.Answer(func(_ http.ResponseWriter, r *http.Request) bool {
		if sent, err := io.ReadAll(r.Body); err == nil {
			r.Body = io.NopCloser(bytes.NewReader(bytes.ReplaceAll(sent, []byte("report"), []byte("retort"))))
		}
		return false
	})
	if o, err := s.Put(within(t, time.Minute), owner, sum([]byte("report")), []byte("report"), ""); err == nil {
		t.Errorf("%+v is kept", o)
	}
	if n := len(b.Objects()); n != 0 {
		t.Errorf("%d objects are there", n)
	}
}

// Two that reopen messages at once must not take the object from each other.
func TestTwoThatRenewAnObjectAtOnceEndWithTheSame(t *testing.T) {
	b, s := world(t)
	o := put(t, s, []byte("report"))
	if err := s.Finish(within(t, time.Minute), o, time.Now()); err != nil {
		t.Fatal(err)
	}
	var other inbox.Object
	once(b, func(_ http.ResponseWriter, r *http.Request) bool {
		if !strings.Contains(r.URL.Path, "/rewriteTo/") {
			return false
		}
		// In a bucket that keeps versions a copy of the old one would succeed, and take the other's place.
		if match := r.URL.Query().Get("ifGenerationMatch"); match != strconv.FormatInt(o.Generation, 10) {
			t.Errorf("the copy is made if the generation is %q, want %d", match, o.Generation)
		}
		b.Answer(nil)
		var err error
		if other, err = s.Renew(within(t, time.Minute), o); err != nil {
			t.Error(err)
		}
		return false
	})
	got, err := s.Renew(within(t, time.Minute), o)
	if err != nil || other.IsZero() || got != other {
		t.Errorf("renewed to %+v, %v; the other has %+v", got, err, other)
	}
	if live := b.Objects(); len(live) != 1 || live[0].Generation != other.Generation {
		t.Errorf("%v is there, want generation %d", live, other.Generation)
	}
}
