// Package claimcheck keeps and reads payloads that do not belong into the database: large ones that receive stores beside
// their rows, and objects that a sender refers to. It knows Cloud Storage, and nothing of routes or rows.
//
// An object that keeps a payload belongs to one message (inbox.PayloadObject). While the message is open or parked, its
// object has no custom time, and the bucket's lifecycle, which counts the days since the custom time, leaves it alone.
// Finish sets it. Cloud Storage never lets a custom time be removed or set back, so Renew writes a new generation where a
// message is needed again. https://docs.cloud.google.com/storage/docs/metadata#custom-time
package claimcheck

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net/http"
	"sync"
	"time"

	"cloud.google.com/go/storage"
	"github.com/googleapis/gax-go/v2"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/iterator"
	"google.golang.org/api/option"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Store reads and writes objects. It is safe for concurrent use. It connects with its first call, because most processes
// never need it.
//
// Errors for errors.Is are inbox.ErrObject...; anything else is technical. A call repeats what Cloud Storage could not do at
// the moment until its context ends.
type Store struct {
	bucket string
	opts   []option.ClientOption

	mu     sync.Mutex
	client *storage.Client
}

// New returns a store that keeps payloads in bucket; empty: none are kept, and only references are read.
func New(bucket string, opts ...option.ClientOption) *Store {
	return &Store{bucket: bucket, opts: opts}
}

// Bucket is where payloads are kept; empty: nowhere.
func (s *Store) Bucket() string { return s.bucket }

// Close ends the connections. No call may be under way.
func (s *Store) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client == nil {
		return nil
	}
	err := s.client.Close()
	s.client = nil
	return err
}

func (s *Store) connect(ctx context.Context) (*storage.Client, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.client != nil {
		return s.client, nil
	}
	client, err := storage.NewClient(context.WithoutCancel(ctx), s.opts...)
	if err != nil {
		return nil, fmt.Errorf("connect to Cloud Storage: %w", err)
	}
	s.client = client
	return client, nil
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// uploadTries bounds how often an upload begins anew. The client repeats no upload that it does not hold a copy of.
const uploadTries = 3

// uploadPause is the pause before the second try of an upload, on average half of this; it doubles with each try.
const uploadPause = 200 * time.Millisecond

// Put keeps a payload and returns its object with its generation. An equal object that is there already is taken: a retry
// of our own, or an earlier delivery of the message. inbox.ErrObjectFinished comes with the object that is there.
func (s *Store) Put(ctx context.Context, inboxID, sha256 string, body []byte, contentType string) (inbox.Object, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return inbox.Object{}, err
	}
	o := inbox.PayloadObject(s.bucket, inboxID, sha256)
	o.Bytes = int64(len(body))
	handle := client.Bucket(o.Bucket).Object(o.Name)
	pause := gax.Backoff{Initial: uploadPause, Multiplier: 2}
	for try := 1; ; try++ {
		w := handle.If(storage.Conditions{DoesNotExist: true}).NewWriter(ctx)
		w.ChunkSize = 0 // sent as it lies here, in one request: no second copy of it in memory
		w.ContentType = contentType
		if contentType == "" {
			w.ContentType = "application/octet-stream"
		}
		w.CRC32C, w.SendCRC32C = crc32.Checksum(body, castagnoli), true // wrong bytes are refused, not kept
		_, err := io.Copy(w, bytes.NewReader(body))
		err = errors.Join(err, w.Close())
		switch {
		case err == nil:
			o.Generation = w.Attrs().Generation
			return o, nil
		case status(err) == http.StatusPreconditionFailed:
			return s.existing(ctx, handle, o, body)
		case try == uploadTries || (status(err) != 0 && !storage.ShouldRetry(err)) || gax.Sleep(ctx, pause.Pause()) != nil:
			return inbox.Object{}, fmt.Errorf("keep a payload of %d bytes as %s: %w", len(body), o.URI(), classify(err))
		}
	}
}

// existing takes the object that is there, if it is the same.
func (s *Store) existing(ctx context.Context, handle *storage.ObjectHandle, o inbox.Object, body []byte) (inbox.Object, error) {
	attrs, err := handle.Attrs(ctx)
	switch {
	case err != nil:
		return inbox.Object{}, fmt.Errorf("look at %s, which is there: %w", o.URI(), classify(err))
	case attrs.Size != o.Bytes || attrs.CRC32C != crc32.Checksum(body, castagnoli):
		return inbox.Object{}, fmt.Errorf("keep a payload as %s: other content is there: %w", o.URI(), inbox.ErrObjectChanged)
	}
	o.Generation = attrs.Generation
	if !attrs.CustomTime.IsZero() {
		return o, inbox.ErrObjectFinished
	}
	return o, nil
}

// Stat says what is there now: with a generation in o, exactly that one. SHA256 stays what o says.
func (s *Store) Stat(ctx context.Context, o inbox.Object) (inbox.FoundObject, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return inbox.FoundObject{}, err
	}
	handle := client.Bucket(o.Bucket).Object(o.Name)
	pinned := handle
	if o.Generation != 0 {
		pinned = handle.Generation(o.Generation)
	}
	attrs, err := pinned.Attrs(ctx)
	if err != nil {
		err = classify(err)
		if o.Generation != 0 && errors.Is(err, inbox.ErrObjectMissing) {
			if other, otherErr := handle.Attrs(ctx); otherErr == nil && other.Generation != o.Generation {
				err = fmt.Errorf("generation %d is gone, and generation %d is there: %w", o.Generation, other.Generation, inbox.ErrObjectChanged)
			}
		}
		return inbox.FoundObject{}, fmt.Errorf("look at %s: %w", o.Pinned(), err)
	}
	return found(attrs, o.SHA256), nil
}

func found(attrs *storage.ObjectAttrs, sha256 string) inbox.FoundObject {
	return inbox.FoundObject{Object: inbox.Object{Bucket: attrs.Bucket, Name: attrs.Name, Generation: attrs.Generation, Bytes: attrs.Size, SHA256: sha256},
		ContentType: attrs.ContentType, ContentEncoding: attrs.ContentEncoding, CustomTime: attrs.CustomTime, Created: attrs.Created}
}

// Read returns the content of o, of which the generation must be known, at most limit bytes of it. What o says of its size
// and hash must be true. A gzip-encoded object is stored compressed: it is checked as it is stored and returned unpacked,
// unless the hash is that of the stored bytes and of no others; either may be what its sender has hashed.
func (s *Store) Read(ctx context.Context, o inbox.Object, limit int64) ([]byte, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	fail := func(err error) ([]byte, error) { return nil, fmt.Errorf("read %s: %w", o.Pinned(), err) }
	// Compressed as it is stored: what Cloud Storage unpacks on the way can neither be checked nor bounded.
	r, err := client.Bucket(o.Bucket).Object(o.Name).Generation(o.Generation).ReadCompressed(true).NewReader(ctx)
	if err != nil {
		return fail(classify(err))
	}
	defer r.Close()
	if r.Attrs.Size > limit {
		return fail(fmt.Errorf("%d bytes, %d are the limit: %w", r.Attrs.Size, limit, inbox.ErrObjectTooLarge))
	}
	stored, err := read(r, r.Attrs.Size, limit) // the client checks the CRC32C at the end
	if err != nil {
		return fail(err)
	}
	content := stored
	if r.Attrs.ContentEncoding == "gzip" {
		if content, err = unzip(stored, limit); err != nil {
			return fail(err)
		}
	}
	switch sum := hash(content); {
	case o.SHA256 == "" || o.SHA256 == sum:
	case len(content) != len(stored) && o.SHA256 == hash(stored):
	default:
		return fail(fmt.Errorf("its SHA-256 is another one: %w", inbox.ErrObjectChanged))
	}
	return content, nil
}

func read(r io.Reader, size, limit int64) ([]byte, error) {
	var content bytes.Buffer
	if size > 0 {
		content.Grow(int(min(size, limit)) + bytes.MinRead)
	}
	switch n, err := io.Copy(&content, io.LimitReader(r, limit+1)); {
	case err != nil:
		return nil, err
	case n > limit:
		return nil, fmt.Errorf("more than %d bytes: %w", limit, inbox.ErrObjectTooLarge)
	}
	return content.Bytes(), nil
}

func unzip(stored []byte, limit int64) ([]byte, error) {
	zip, err := gzip.NewReader(bytes.NewReader(stored))
	if err != nil {
		return nil, fmt.Errorf("it is marked as gzip and is not: %w", inbox.ErrObjectChanged)
	}
	content, err := read(zip, 0, limit)
	if err != nil && !errors.Is(err, inbox.ErrObjectTooLarge) {
		return nil, fmt.Errorf("it is marked as gzip and breaks off: %w", inbox.ErrObjectChanged)
	}
	return content, err
}

func hash(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Finish marks o for the bucket's lifecycle, which deletes it so many days after at. Only this generation: what was made
// anew since is needed. An object that is gone, or marked already, is as it should be.
func (s *Store) Finish(ctx context.Context, o inbox.Object, at time.Time) error {
	client, err := s.connect(ctx)
	if err != nil {
		return err
	}
	// To set the same time again changes nothing. The client cannot know that, and would not repeat the request.
	handle := client.Bucket(o.Bucket).Object(o.Name).Generation(o.Generation).Retryer(storage.WithPolicy(storage.RetryAlways))
	_, err = handle.Update(ctx, storage.ObjectAttrsToUpdate{CustomTime: at.UTC()})
	switch {
	case err == nil, errors.Is(classify(err), inbox.ErrObjectMissing):
		return nil
	case status(err) == http.StatusBadRequest: // a later time is set: it cannot be set back, and need not
		if now, statErr := s.Stat(ctx, o); statErr == nil && !now.CustomTime.IsZero() {
			return nil
		}
	}
	return fmt.Errorf("set the custom time of %s: %w", o.Pinned(), classify(err))
}

// Renew sees to it that there is an object with o's content, in another generation than o's and without a custom time, and
// returns it. One that is there already is taken: two that renew the same object end with the same one. Otherwise o's
// generation is made anew, or an equal one that is on its way out.
func (s *Store) Renew(ctx context.Context, o inbox.Object) (inbox.Object, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return inbox.Object{}, err
	}
	for try := 1; ; try++ {
		renewed, err := s.renew(ctx, client.Bucket(o.Bucket).Object(o.Name), o)
		switch {
		case err == nil:
			return renewed, nil
		case try < uploadTries && errors.Is(err, errOvertaken):
		default:
			return inbox.Object{}, fmt.Errorf("renew %s: %w", o.Pinned(), classify(err))
		}
	}
}

// errOvertaken: the generation that was to be copied is no longer the live one. In a bucket without versions it is gone.
var errOvertaken = errors.New("another generation has taken its place")

func (s *Store) renew(ctx context.Context, handle *storage.ObjectHandle, o inbox.Object) (inbox.Object, error) {
	live, err := handle.Attrs(ctx)
	if err != nil {
		return inbox.Object{}, err
	}
	if live.Size != o.Bytes {
		return inbox.Object{}, inbox.ErrObjectChanged
	}
	if live.Generation != o.Generation {
		// Its name is the hash of its content, and only its bucket's owner writes there; still it is looked at.
		at := o
		at.Generation = live.Generation
		if _, err := s.Read(ctx, at, o.Bytes); err != nil {
			return inbox.Object{}, err
		}
		if live.CustomTime.IsZero() {
			return at, nil
		}
	}
	copier := handle.If(storage.Conditions{GenerationMatch: live.Generation}).CopierFrom(handle.Generation(live.Generation))
	// Metadata that is given replaces what the source has: the custom time goes.
	copier.ContentType = cmp.Or(live.ContentType, "application/octet-stream")
	copied, err := copier.Run(ctx)
	if status(err) == http.StatusPreconditionFailed || errors.Is(err, storage.ErrObjectNotExist) {
		return inbox.Object{}, fmt.Errorf("%w: %w", errOvertaken, err)
	}
	if err != nil {
		return inbox.Object{}, err
	}
	o.Generation = copied.Generation
	return o, nil
}

// List calls each for up to limit objects of bucket whose names begin with prefix, in the order of their names, those after
// the name after. It returns the last name that it met, or an empty one at the end of the bucket.
func (s *Store) List(ctx context.Context, bucket, prefix, after string, limit int, each func(inbox.FoundObject) error) (last string, err error) {
	client, err := s.connect(ctx)
	if err != nil {
		return "", err
	}
	query := &storage.Query{Prefix: prefix, StartOffset: after} // which includes after itself
	if err := query.SetAttrSelection([]string{"Bucket", "Name", "Generation", "Size", "ContentType", "ContentEncoding", "CustomTime", "Created"}); err != nil {
		return "", fmt.Errorf("list gs://%s: %w", bucket, err)
	}
	objects := client.Bucket(bucket).Objects(ctx, query)
	objects.PageInfo().MaxSize = min(limit+1, 1000)
	for seen := 0; seen < limit; {
		attrs, err := objects.Next()
		if errors.Is(err, iterator.Done) {
			return "", nil
		}
		if err != nil {
			return last, fmt.Errorf("list gs://%s: %w", bucket, classify(err))
		}
		if attrs.Name == after {
			continue
		}
		last, seen = attrs.Name, seen+1
		if err := each(found(attrs, "")); err != nil {
			return last, err
		}
	}
	return last, nil
}

func status(err error) int {
	var answer *googleapi.Error
	if errors.As(err, &answer) {
		return answer.Code
	}
	return 0
}

func classify(err error) error {
	switch {
	case errors.Is(err, storage.ErrObjectNotExist), errors.Is(err, storage.ErrBucketNotExist), status(err) == http.StatusNotFound:
		return fmt.Errorf("%w (%w)", inbox.ErrObjectMissing, err)
	case status(err) == http.StatusForbidden, status(err) == http.StatusUnauthorized:
		return fmt.Errorf("%w (%w)", inbox.ErrObjectForbidden, err)
	case err == nil, errors.Is(err, inbox.ErrObjectChanged), errors.Is(err, inbox.ErrObjectMissing), errors.Is(err, inbox.ErrObjectTooLarge):
		return err
	}
	return &inbox.ObjectError{Status: status(err), Err: err}
}
