package inbox

import (
	"fmt"
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// Object is an object in Cloud Storage. Generation 0 and empty texts are unknown.
type Object struct {
	Bucket     string
	Name       string
	Generation int64
	Bytes      int64
	SHA256     string // of its content, in hex
}

// ForObject is what a message's patience is used for while the object that it refers to is not there.
const ForObject = "OBJECT"

// FoundObject is an object that is there.
type FoundObject struct {
	Object
	ContentType     string
	ContentEncoding string
	CustomTime      time.Time // zero: the bucket's lifecycle leaves it alone
	Created         time.Time
}

// IsZero reports whether there is no object.
func (o Object) IsZero() bool { return o.Bucket == "" }

// URI is gs://bucket/name, without the generation. The name stands in it as it is: it is no URL.
func (o Object) URI() string { return "gs://" + o.Bucket + "/" + o.Name }

// Pinned is the URI with #generation behind it, if that is known, as Google's tools write it.
func (o Object) Pinned() string {
	if o.Generation == 0 {
		return o.URI()
	}
	return o.URI() + "#" + strconv.FormatInt(o.Generation, 10)
}

// Location is what the column PayloadLocation holds of an object that keeps a payload:
// gs://bucket/name?generation=G&bytes=N&sha256=H.
func (o Object) Location() string {
	return fmt.Sprintf("%s?generation=%d&bytes=%d&sha256=%s", o.URI(), o.Generation, o.Bytes, o.SHA256)
}

// PayloadObject names the object that keeps the payload of a message. It is never shared between messages: what is kept or
// erased for one must not touch another.
func PayloadObject(bucket, inboxID, sha256 string) Object {
	return Object{Bucket: bucket, Name: inboxID + "/" + sha256, SHA256: sha256}
}

// OwnerOf returns the message whose payload an object of this name keeps; ok is false for a name that is not ours.
func OwnerOf(name string) (inboxID, sha256 string, ok bool) {
	m := payloadName.FindStringSubmatch(name)
	if m == nil {
		return "", "", false
	}
	return m[1], m[2], true
}

var payloadName = regexp.MustCompile(`^([0-9a-f]{32})/([0-9a-f]{64})$`)

// ParseLocation reads what Location has written.
func ParseLocation(location string) (Object, error) {
	fault := fmt.Errorf("%q is no payload location", location)
	before, query, ok := strings.Cut(location, "?")
	rest, gs := strings.CutPrefix(before, "gs://")
	bucket, name, slash := strings.Cut(rest, "/")
	values, err := url.ParseQuery(query)
	if !ok || !gs || !slash || bucket == "" || name == "" || err != nil {
		return Object{}, fault
	}
	o := Object{Bucket: bucket, Name: name, SHA256: values.Get("sha256")}
	if o.Generation, err = strconv.ParseInt(values.Get("generation"), 10, 64); err != nil || o.Generation <= 0 {
		return Object{}, fault
	}
	if o.Bytes, err = strconv.ParseInt(values.Get("bytes"), 10, 64); err != nil || o.Bytes < 0 {
		return Object{}, fault
	}
	return o, nil
}

// MaxObjectName is Cloud Storage's limit for names, in bytes. https://docs.cloud.google.com/storage/docs/objects
const MaxObjectName = 1024

var (
	bucketName = regexp.MustCompile(`^[a-z0-9][a-z0-9._-]{1,220}[a-z0-9]$`)
	generation = regexp.MustCompile(`^[0-9]{1,19}$`)
	// generationStamp is a generation where a name's end could be one.
	generationStamp = regexp.MustCompile(`^[1-9][0-9]{15}$`)
	hexSHA256       = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// Reference makes an object of what a sender says about it. The texts are taken literally: nothing in a name is decoded or
// resolved. Generation and hash may be empty. The error says what is wrong, and holds no value.
func Reference(bucket, name, generationText, sha256 string) (Object, error) {
	o := Object{Bucket: bucket, Name: name, SHA256: strings.ToLower(sha256)}
	switch {
	case name == "." || name == "..": // no object has such a name
		return Object{}, fmt.Errorf("the object has no valid name")
	case bucket == "" || name == "":
		return Object{}, fmt.Errorf("the reference lacks a bucket or an object")
	case !bucketName.MatchString(bucket):
		return Object{}, fmt.Errorf("the bucket has no valid name")
	case len(name) > MaxObjectName || !utf8.ValidString(name) || strings.ContainsAny(name, "\r\n"):
		return Object{}, fmt.Errorf("the object has no valid name: up to %d bytes of UTF-8, without line breaks", MaxObjectName)
	case o.SHA256 != "" && !hexSHA256.MatchString(o.SHA256):
		return Object{}, fmt.Errorf("the SHA-256 is not 64 hexadecimal digits")
	}
	if generationText != "" {
		var err error
		if o.Generation, err = strconv.ParseInt(generationText, 10, 64); err != nil || !generation.MatchString(generationText) || o.Generation <= 0 {
			return Object{}, fmt.Errorf("the generation is not a positive integer")
		}
	}
	return o, nil
}

// ParseReference reads gs://bucket/object, with or without #generation behind it. What follows the last # is the generation if it
// has sixteen digits, as the microseconds have that Cloud Storage numbers generations by, until the year 2286; else it is a part
// of the name. Names may hold a #, and often a small number behind it.
func ParseReference(uri string) (Object, error) {
	scheme, rest, ok := strings.Cut(uri, "://")
	if !ok || scheme != "gs" {
		return Object{}, fmt.Errorf("the reference does not begin with gs://: no other scheme is allowed")
	}
	bucket, name, _ := strings.Cut(rest, "/")
	text := ""
	if at := strings.LastIndexByte(name, '#'); at > 0 && generationStamp.MatchString(name[at+1:]) {
		name, text = name[:at], name[at+1:]
	}
	return Reference(bucket, name, text, "")
}
