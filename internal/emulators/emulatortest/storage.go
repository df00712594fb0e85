package emulatortest

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"cloud.google.com/go/storage"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/pubsub-inbox/pubsub-inbox/internal/emulators"
)

var sharedStorage struct {
	once     sync.Once
	emulator *emulators.Emulator
	err      error
}

// Bucket is a bucket of a test's own on the process's Cloud Storage server, with what stands between it and a client.
type Bucket struct {
	Name   string
	t      testing.TB
	server *httptest.Server

	mu     sync.Mutex
	answer func(w http.ResponseWriter, r *http.Request) bool
	after  func(r *http.Request, status int) bool
	calls  []string
}

// NewBucket makes a bucket. The server ends with the process, and holds everything in memory.
func NewBucket(t testing.TB) *Bucket {
	t.Helper()
	sharedStorage.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
		defer cancel()
		sharedStorage.emulator, sharedStorage.err = emulators.StartStorage(ctx)
	})
	if sharedStorage.err != nil {
		t.Fatal(sharedStorage.err)
	}
	b := &Bucket{Name: "b-" + strings.ToLower(rand.Text()[:16]), t: t}
	ctx, cancel := context.WithTimeout(context.Background(), setupTimeout)
	defer cancel()
	if err := emulators.NewBucket(ctx, sharedStorage.emulator.Host(), Project, b.Name); err != nil {
		t.Fatal(err)
	}
	target := &url.URL{Scheme: "http", Host: sharedStorage.emulator.Host()}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(target) }} // with the server's own Host
	b.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.mu.Lock()
		b.calls = append(b.calls, r.Method+" "+r.URL.EscapedPath())
		answer, after := b.answer, b.after
		b.mu.Unlock()
		if answer != nil && answer(w, r) {
			return
		}
		recorded := httptest.NewRecorder()
		if refused := b.likeCloudStorage(r); refused != 0 {
			recorded.WriteHeader(refused)
		} else {
			proxy.ServeHTTP(recorded, r)
		}
		if after != nil && after(r, recorded.Code) {
			panic(http.ErrAbortHandler) // the answer is lost
		}
		for name, values := range recorded.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(recorded.Code)
		_, _ = io.Copy(w, recorded.Body)
	}))
	t.Cleanup(b.server.Close)
	return b
}

// likeCloudStorage says what Cloud Storage would refuse, and the server here does not: an update of a generation that is not
// there, and a custom time before the one that is set. https://docs.cloud.google.com/storage/docs/metadata#custom-time
func (b *Bucket) likeCloudStorage(r *http.Request) (status int) {
	if r.Method != http.MethodPatch {
		return 0
	}
	path := strings.TrimPrefix(r.URL.EscapedPath(), "/storage/v1/b/"+b.Name+"/o/")
	name, err := url.PathUnescape(path)
	if err != nil {
		return 0
	}
	attrs, err := b.client().Bucket(b.Name).Object(name).Attrs(r.Context())
	if err != nil {
		return http.StatusNotFound
	}
	if want := r.URL.Query().Get("generation"); want != "" && want != strconv.FormatInt(attrs.Generation, 10) {
		return http.StatusNotFound
	}
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return http.StatusBadRequest
	}
	r.Body = io.NopCloser(bytes.NewReader(body))
	var update struct{ CustomTime *time.Time }
	if json.Unmarshal(body, &update) == nil && update.CustomTime != nil && update.CustomTime.Before(attrs.CustomTime) {
		return http.StatusBadRequest
	}
	return 0
}

// Options connect a client of Cloud Storage, through what Answer and Lose have set.
func (b *Bucket) Options() []option.ClientOption {
	return emulators.StorageClientOptions(strings.TrimPrefix(b.server.URL, "http://"))
}

// Answer has every request answered by f, where that says that it has done so. Nil: none.
func (b *Bucket) Answer(f func(w http.ResponseWriter, r *http.Request) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.answer = f
}

// Refuse has every request answered with a status. 0: none.
func (b *Bucket) Refuse(status int) {
	if status == 0 {
		b.Answer(nil)
		return
	}
	b.Answer(func(w http.ResponseWriter, _ *http.Request) bool {
		http.Error(w, http.StatusText(status), status)
		return true
	})
}

// Lose has a request executed and its answer lost, where f says so. Nil: none.
func (b *Bucket) Lose(f func(r *http.Request, status int) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.after = f
}

// Calls returns method and path of every request since the last call of Calls.
func (b *Bucket) Calls() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	calls := b.calls
	b.calls = nil
	return calls
}

func (b *Bucket) client() *storage.Client {
	b.t.Helper()
	client, err := storage.NewClient(context.Background(), append(emulators.StorageClientOptions(sharedStorage.emulator.Host()), storage.WithJSONReads())...)
	if err != nil {
		b.t.Fatal(err)
	}
	b.t.Cleanup(func() { _ = client.Close() })
	return client
}

// Write puts an object there, past everything that stands between, and returns its generation.
func (b *Bucket) Write(name string, content []byte, set func(*storage.Writer)) int64 {
	b.t.Helper()
	w := b.client().Bucket(b.Name).Object(name).NewWriter(context.Background())
	if set != nil {
		set(w)
	}
	if _, err := io.Copy(w, bytes.NewReader(content)); err != nil {
		b.t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		b.t.Fatal(err)
	}
	return w.Attrs().Generation
}

// Delete removes an object.
func (b *Bucket) Delete(name string) {
	b.t.Helper()
	if err := b.client().Bucket(b.Name).Object(name).Delete(context.Background()); err != nil {
		b.t.Fatal(err)
	}
}

// Objects returns everything that is there.
func (b *Bucket) Objects() []*storage.ObjectAttrs {
	b.t.Helper()
	var all []*storage.ObjectAttrs
	objects := b.client().Bucket(b.Name).Objects(context.Background(), nil)
	for {
		attrs, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return all
		}
		if err != nil {
			b.t.Fatal(err)
		}
		all = append(all, attrs)
	}
}
