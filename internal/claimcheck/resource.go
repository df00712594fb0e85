package claimcheck

import (
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"time"

	raw "google.golang.org/api/storage/v1"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// Resource returns what the JSON API says of o, of which the generation must be known, as a notification with the payload
// format JSON_API_V1 has it. It is not the same to the last byte: members that only the server knows are missing.
// https://docs.cloud.google.com/storage/docs/json_api/v1/objects#resource
func (s *Store) Resource(ctx context.Context, o inbox.Object) ([]byte, error) {
	client, err := s.connect(ctx)
	if err != nil {
		return nil, err
	}
	attrs, err := client.Bucket(o.Bucket).Object(o.Name).Generation(o.Generation).Attrs(ctx)
	if err != nil {
		return nil, fmt.Errorf("look at %s: %w", o.Pinned(), classify(err))
	}
	at := func(t time.Time) string {
		if t.IsZero() {
			return ""
		}
		return t.UTC().Format("2006-01-02T15:04:05.000Z07:00")
	}
	resource := raw.Object{
		Kind: "storage#object", Id: fmt.Sprintf("%s/%s/%d", attrs.Bucket, attrs.Name, attrs.Generation),
		Name: attrs.Name, Bucket: attrs.Bucket, Generation: attrs.Generation, Metageneration: attrs.Metageneration,
		ContentType: attrs.ContentType, ContentEncoding: attrs.ContentEncoding, ContentDisposition: attrs.ContentDisposition,
		ContentLanguage: attrs.ContentLanguage, CacheControl: attrs.CacheControl, Metadata: attrs.Metadata,
		Size: uint64(max(0, attrs.Size)), StorageClass: attrs.StorageClass, Etag: attrs.Etag, MediaLink: attrs.MediaLink,
		TimeCreated: at(attrs.Created), Updated: at(attrs.Updated), CustomTime: at(attrs.CustomTime),
		Crc32c:          base64.StdEncoding.EncodeToString(binary.BigEndian.AppendUint32(nil, attrs.CRC32C)),
		ForceSendFields: []string{"Size"}, // of an empty object, too
	}
	if len(attrs.MD5) > 0 {
		resource.Md5Hash = base64.StdEncoding.EncodeToString(attrs.MD5)
	}
	content, err := json.Marshal(&resource)
	if err != nil {
		return nil, fmt.Errorf("describe %s: %w", o.Pinned(), err)
	}
	return content, nil
}
