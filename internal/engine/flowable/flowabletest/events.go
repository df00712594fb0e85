package flowabletest

import (
	"archive/zip"
	"bytes"
	"maps"
	"net/http"
	"slices"
	"strings"
)

// DeployArchive deploys several files together: a process with the events and channels that it refers to.
func (c *Client) DeployArchive(name string, files map[string][]byte) {
	c.t.Helper()
	var archive bytes.Buffer
	w := zip.NewWriter(&archive)
	for _, file := range slices.Sorted(maps.Keys(files)) {
		f, err := w.Create(file)
		if err == nil {
			_, err = f.Write(files[file])
		}
		if err != nil {
			c.t.Fatal(err)
		}
	}
	if err := w.Close(); err != nil {
		c.t.Fatal(err)
	}
	c.deploy(name+".zip", "", archive.Bytes())
}

// Event hands an event to an inbound channel of Flowable's event registry, as its listener of a broker would, and returns
// what that listener is told.
func (c *Client) Event(channel, event string) (int, []byte) {
	c.t.Helper()
	root := *c
	root.base = strings.TrimSuffix(c.base, "/process-api")
	return root.send(http.MethodPost, "/events/"+channel, "application/json", strings.NewReader(event), nil)
}
