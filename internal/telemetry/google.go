package telemetry

import (
	"context"
	"fmt"
	"net/http"
	"path"
	"sync"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/compute/metadata"
)

// GoogleClient returns a client that shows the workload's own identity. It looks for one at its first request.
func GoogleClient() *http.Client {
	return &http.Client{Transport: &authorised{base: http.DefaultTransport.(*http.Transport).Clone()}, Timeout: exportTimeout}
}

// Region asks the metadata server for the region.
func Region(ctx context.Context) (string, error) {
	region, err := metadata.GetWithContext(ctx, "instance/region") // projects/NUMBER/regions/REGION
	return path.Base(region), err
}

type authorised struct {
	base http.RoundTripper

	mu    sync.Mutex
	creds *auth.Credentials
}

func (a *authorised) RoundTrip(r *http.Request) (*http.Response, error) {
	creds, err := a.credentials()
	if err != nil {
		return nil, err
	}
	token, err := creds.Token(r.Context())
	if err != nil {
		return nil, fmt.Errorf("get a token for telemetry: %w", err)
	}
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token.Value)
	// A person's credentials are billed to the project that they name; a workload's name none.
	if project, err := creds.QuotaProjectID(r.Context()); err == nil && project != "" {
		r.Header.Set("X-Goog-User-Project", project)
	}
	return a.base.RoundTrip(r)
}

func (a *authorised) credentials() (*auth.Credentials, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.creds != nil {
		return a.creds, nil
	}
	creds, err := credentials.DetectDefault(&credentials.DetectOptions{Scopes: []string{"https://www.googleapis.com/auth/cloud-platform"}})
	if err != nil {
		return nil, fmt.Errorf("find credentials for telemetry: %w", err)
	}
	a.creds = creds
	return creds, nil
}
