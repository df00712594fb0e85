package flowable

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"

	"github.com/pubsub-inbox/pubsub-inbox/internal/engine/httpcall"
)

// info is the body of Flowable's own errors. Its texts are compared with what is known, and never kept: a step's own error
// can repeat values, of this message and of any that came before.
type info struct {
	Message   string `json:"message"`
	Exception string `json:"exception"`
}

// errorInfo reads Flowable's own error, and reports whether the answer is one. Spring's (timestamp, status, error, path)
// and a proxy's are not: they say nothing about an execution.
func errorInfo(a httpcall.Answer) (info, bool) {
	var members map[string]json.RawMessage
	if !a.JSON() || json.Unmarshal(a.Body, &members) != nil || members["message"] == nil || members["exception"] == nil {
		return info{}, false
	}
	var i info
	if json.Unmarshal(members["message"], &i.Message) != nil || json.Unmarshal(members["exception"], &i.Exception) != nil {
		return info{}, false
	}
	return i, true
}

// What Flowable says, in its own words. A test compares them with what a real one says.
const (
	saysNotSubscribed = "does not have a subscription to a message event with name '"
	saysSuspended     = "Cannot receive message for a suspended "
	saysConcurrently  = "updated by another transaction concurrently"
	// noEndpoint begins what Flowable's servlet says, with status 500, of a path that none of its resources has.
	noEndpoint = "No endpoint "
)

var (
	saysNotOfType = regexp.MustCompile(`^The given variable value is not an? (date|instant|localDate|localDateTime): '`)
	saysErrorID   = regexp.MustCompile(`^Error with ID: [0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$`)
)

// saysGone reports whether Flowable says that this very execution is gone, or waits for this message no more. The same
// statuses, and the same classes of errors, come from later steps of the process.
func (i info) saysGone(status int, execution, message string) bool {
	switch status {
	case http.StatusNotFound:
		return i.Exception == "Could not find an execution with id '"+execution+"'." || i.Exception == "execution "+execution+" doesn't exist"
	case http.StatusInternalServerError:
		return strings.HasPrefix(i.Exception, "Execution[ id '"+execution+"' ]") && strings.HasSuffix(i.Exception, saysNotSubscribed+message+"'")
	}
	return false
}

// requestFault is what is wrong with the request itself; empty: it is not the request that Flowable complains of. It reads
// a request before it begins a transaction; steps fail in theirs, and with the same status.
func (i info) requestFault() string {
	if m := saysNotOfType.FindStringSubmatch(i.Exception); m != nil {
		return "The value of a variable is no " + m[1] + ", which is its type."
	}
	switch {
	case strings.HasPrefix(i.Exception, "Converter can only convert "):
		return "The value of a variable is not of its type."
	case strings.HasPrefix(i.Exception, "Variable '") && strings.Contains(i.Exception, "' has unsupported type: '"):
		return "The engine does not have the type of a variable."
	case strings.HasPrefix(i.Exception, "JSON parse error: "), strings.HasPrefix(i.Exception, "Invalid HTTP message. Error ID: "):
		return "The engine cannot read the message: something in it is longer than it allows."
	}
	return ""
}

// failed says that what failed, and where the reason is.
func (i info) failed(what string) string {
	if saysErrorID.MatchString(i.Exception) {
		return what + " (" + i.Exception + "); its log says why."
	}
	return what + "; its log says why."
}
