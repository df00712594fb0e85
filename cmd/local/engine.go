package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
)

// served is a demo engine that is reached by HTTP, at a free port.
type served struct {
	*demoengine.Engine
	url    string
	server *http.Server
	wall   wall
}

func serveEngine() (*served, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the demo engine: %w", err)
	}
	e := &served{Engine: demoengine.New(demoengine.Options{}), url: "http://" + l.Addr().String()}
	e.server = &http.Server{Handler: e.wall.wrap(engineHandler(e.Engine)), ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = e.server.Serve(l) }()
	return e, nil
}

func (e *served) stop() {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if e.server.Shutdown(ctx) != nil {
		_ = e.server.Close()
	}
}

// engineHandler is the engine, and what a person needs to play with it. Nothing but a person calls the latter:
//
//	POST   /instances {"key": K, "messages": [M, ...]}  starts an instance that waits for the messages, one after another
//	DELETE /instances?key=K                             removes the oldest instance of K
//	GET    /history                                     one JSON object a delivery, in the order of arrival
func engineHandler(e *demoengine.Engine) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /instances", func(w http.ResponseWriter, r *http.Request) {
		var ask struct {
			Key      string   `json:"key"`
			Messages []string `json:"messages"`
		}
		if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 1<<20)).Decode(&ask); err != nil || ask.Key == "" || len(ask.Messages) == 0 {
			http.Error(w, `the body must be {"key": "...", "messages": ["...", ...]}`, http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusCreated)
		_ = json.NewEncoder(w).Encode(map[string]string{"id": e.Start(ask.Key, ask.Messages...)})
	})
	mux.HandleFunc("DELETE /instances", func(w http.ResponseWriter, r *http.Request) {
		if !e.RemoveOne(r.URL.Query().Get("key")) {
			http.Error(w, "no instance has this key", http.StatusNotFound)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /history", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/x-ndjson")
		for _, d := range e.History() {
			_ = json.NewEncoder(w).Encode(map[string]any{"key": d.Key, "message": d.Message, "inboxId": d.InboxID,
				"attempt": d.Attempt, "status": d.Status, "advanced": d.Advanced, "start": d.Start})
		}
	})
	mux.Handle("/", e)
	return mux
}

// withEngines puts the engines' addresses into an embedded configuration, where NAME.invalid stands for them: so the file
// is a valid configuration as it is.
func withEngines(text string, engines map[string]*served) string {
	for name, e := range engines {
		text = strings.ReplaceAll(text, "http://"+name+".invalid", e.url)
	}
	return text
}
