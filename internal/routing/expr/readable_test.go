package expr

import (
	"bytes"
	"compress/gzip"
	"testing"
)

func TestWhatOfAPayloadIsRead(t *testing.T) {
	zip := func(b []byte) []byte {
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		if _, err := z.Write(b); err != nil {
			t.Fatal(err)
		}
		if err := z.Close(); err != nil {
			t.Fatal(err)
		}
		return packed.Bytes()
	}
	const text, mark = `{"id":"WO-1"}`, "\uFEFF"
	const noJSON, noCharset, noCoding = "the payload is not JSON", "the payload has a character set that is not read here",
		"the payload has a content encoding that is not read here"
	packed := func(coding string) map[string]string { return map[string]string{"Content-Encoding": coding} }
	typed := func(contentType string) map[string]string { return map[string]string{"content-type": contentType} }
	for name, tt := range map[string]struct {
		payload    []byte
		attributes map[string]string
		why        string
	}{
		"plain":                      {[]byte(text), nil, ""},
		"a mark":                     {[]byte(mark + text), nil, ""},
		"two marks":                  {[]byte(mark + mark + text), nil, noJSON},
		"a mark behind white space":  {[]byte(" " + mark + text), nil, noJSON},
		"nothing but a mark":         {[]byte(mark), nil, noJSON},
		"UTF-16 with its mark":       {[]byte("\xfe\xff\x00{\x00}"), nil, noJSON},
		"gzip":                       {zip([]byte(text)), packed("gzip"), ""},
		"gzip in capitals":           {zip([]byte(text)), packed("GZip"), ""},
		"gzip with a mark":           {zip([]byte(mark + text)), packed("x-gzip"), ""},
		"gzip that is none":          {[]byte(text), packed("gzip"), "the payload is called gzip and is not"},
		"gzip that breaks off":       {zip([]byte(text))[:20], packed("gzip"), "the payload is called gzip and is not"},
		"gzip of gzip":               {zip(zip([]byte(text))), packed("gzip"), noJSON},
		"gzip of no JSON":            {zip([]byte("a,b")), packed("gzip"), noJSON},
		"gzip without a word of it":  {zip([]byte(text)), nil, noJSON},
		"gzip of very much":          {zip(append(bytes.Repeat([]byte(" "), MaxUnpacked), text...)), packed("gzip"), "the payload unpacks to more than is read"},
		"brotli":                     {[]byte(text), packed("br"), noCoding},
		"two codings":                {zip([]byte(text)), packed("gzip, br"), noCoding},
		"no coding":                  {[]byte(text), packed("identity"), ""},
		"UTF-8 by name":              {[]byte(text), typed("application/json; charset=UTF-8"), ""},
		"ASCII under another name":   {[]byte(text), typed("application/json; charset=iso-8859-1"), ""},
		"beyond ASCII under another": {[]byte(`{"id":"WO-1","x":"é"}`), typed("application/json; charset=iso-8859-1"), noCharset},
	} {
		in := NewInput(Message{}, tt.attributes, tt.payload)
		if why := in.Unread(); why != tt.why || in.JSON() == (tt.why != "") {
			t.Errorf("%s: %q, want %q", name, why, tt.why)
		}
		p := mustCompile(t, "payload.id", ForKey)
		if key, _ := p.Key(in); (key == "WO-1") != (tt.why == "") {
			t.Errorf("%s: the key is %q", name, key)
		}
	}
}
