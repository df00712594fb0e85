package expr

import (
	"bytes"
	"compress/gzip"
	"io"
	"mime"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
)

// MaxUnpacked bounds what a payload is unpacked to: the size of a message that was published as it is.
// https://docs.cloud.google.com/pubsub/quotas
const MaxUnpacked = 10_000_000

var byteOrderMark = []byte("\uFEFF")

// readable returns the JSON of a payload as it lies there, unpacked and without a byte order mark; or why there is none. The
// words name no value.
func readable(payload []byte, attributes map[string]string) (document []byte, why string) {
	switch inbox.ContentEncoding(attributes) {
	case "":
	case "gzip", "x-gzip":
		if payload, why = unpack(payload); why != "" {
			return nil, why
		}
	default:
		return nil, "the payload has a content encoding that is not read here"
	}
	payload = bytes.TrimPrefix(payload, byteOrderMark)
	switch {
	case otherCharset(attributes) && !ascii(payload):
		return nil, "the payload has a character set that is not read here"
	case !validJSON(payload):
		return nil, "the payload is not JSON"
	}
	return payload, ""
}

func unpack(payload []byte) (unpacked []byte, why string) {
	zip, err := gzip.NewReader(bytes.NewReader(payload))
	if err == nil {
		unpacked, err = io.ReadAll(io.LimitReader(zip, MaxUnpacked+1))
	}
	switch {
	case err != nil:
		return nil, "the payload is called gzip and is not"
	case len(unpacked) > MaxUnpacked:
		return nil, "the payload unpacks to more than is read"
	}
	return unpacked, ""
}

// otherCharset reports whether the content type names another character set than UTF-8 and what is a part of it. What is
// ASCII reads the same in all others that can hold JSON; a text beyond it could be valid UTF-8 by accident.
func otherCharset(attributes map[string]string) bool {
	_, parameters, err := mime.ParseMediaType(inbox.Attribute(attributes, "content-type"))
	switch strings.ToLower(parameters["charset"]) {
	case "", "utf-8", "utf8", "us-ascii", "ascii":
		return false
	}
	return err == nil
}

func ascii(b []byte) bool {
	for _, c := range b {
		if c >= 0x80 {
			return false
		}
	}
	return true
}
