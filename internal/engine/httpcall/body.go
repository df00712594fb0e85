package httpcall

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"compress/zlib"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"strings"
	"unicode/utf8"

	"golang.org/x/text/encoding"
	"golang.org/x/text/encoding/charmap"
	"golang.org/x/text/encoding/unicode"
)

// decoded undoes the content encodings of a body, none of which was asked for. A body that is longer than limit when it is
// decoded counts as one that cannot be read, and so does one in an encoding that is not known here.
func decoded(h http.Header, body []byte, limit int64) ([]byte, bool) {
	encodings := strings.Split(strings.ToLower(strings.Join(h.Values("Content-Encoding"), ",")), ",")
	for i := len(encodings) - 1; i >= 0; i-- {
		var from io.Reader
		var err error
		switch strings.TrimSpace(encodings[i]) {
		case "", "identity":
			continue
		case "gzip", "x-gzip":
			from, err = gzip.NewReader(bytes.NewReader(body))
		case "deflate":
			if from, err = zlib.NewReader(bytes.NewReader(body)); errors.Is(err, zlib.ErrHeader) {
				from, err = flate.NewReader(bytes.NewReader(body)), nil // as some servers have always understood the name
			}
		default:
			return nil, false
		}
		if err != nil {
			return nil, false
		}
		body, err = io.ReadAll(io.LimitReader(from, limit+1))
		if err != nil || int64(len(body)) > limit {
			return nil, false
		}
	}
	return body, true
}

// charsets are those that an engine may write JSON in although JSON is UTF-8: what older servers have as their default, and
// what a byte order mark can announce.
var charsets = map[string]encoding.Encoding{
	"iso-8859-1": charmap.Windows1252, "latin1": charmap.Windows1252, "windows-1252": charmap.Windows1252, "cp1252": charmap.Windows1252,
	"iso-8859-15": charmap.ISO8859_15,
	"utf-16":      unicode.UTF16(unicode.BigEndian, unicode.UseBOM),
	"utf-16be":    unicode.UTF16(unicode.BigEndian, unicode.IgnoreBOM),
	"utf-16le":    unicode.UTF16(unicode.LittleEndian, unicode.IgnoreBOM),
}

// text is body as UTF-8 without a byte order mark. The bytes say what they are before the charset does; bytes that fit
// nothing stay as they are.
func text(body []byte, charset string) []byte {
	charset = strings.ToLower(charset)
	switch {
	case bytes.HasPrefix(body, []byte("\xef\xbb\xbf")):
		return body[3:]
	case bytes.HasPrefix(body, []byte("\xfe\xff")), bytes.HasPrefix(body, []byte("\xff\xfe")):
		charset = "utf-16"
	case len(body) > 1 && body[0] == 0 && body[1] != 0:
		charset = "utf-16be"
	case len(body) > 1 && body[0] != 0 && body[1] == 0:
		charset = "utf-16le"
	case utf8.Valid(body):
		return body
	}
	if known, ok := charsets[charset]; ok {
		if utf, err := known.NewDecoder().Bytes(body); err == nil {
			return bytes.TrimPrefix(utf, []byte("\ufeff"))
		}
	}
	return body
}

// complete reports whether a body that broke off has said all that it had to: a JSON object says itself where it ends.
func complete(body []byte) bool {
	return bytes.HasPrefix(bytes.TrimLeft(body, " \t\r\n"), []byte("{")) && json.Valid(body)
}
