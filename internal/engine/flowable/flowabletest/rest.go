package flowabletest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"mime/multipart"
	"net/http"
)

// Call makes a request as a person would who is no test: path is below URL, body is sent as JSON unless it is nil, and the
// answer is decoded into into unless that is nil. Any answer but 2xx is an error with Flowable's text.
func (s *Server) Call(ctx context.Context, method, path string, body, into any) error {
	var in io.Reader
	if body != nil {
		raw, err := json.Marshal(body)
		if err != nil {
			return fmt.Errorf("%s %s: %w", method, path, err)
		}
		in = bytes.NewReader(raw)
	}
	status, raw, err := send(ctx, method, s.URL()+path, "application/json", in)
	switch {
	case err != nil:
		return fmt.Errorf("%s %s: %w", method, path, err)
	case status > 299:
		return fmt.Errorf("%s %s: status %d: %.500s", method, path, status, raw)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("%s %s: %w: %.500s", method, path, err, raw)
	}
	return nil
}

// Deploy deploys a BPMN file.
func (s *Server) Deploy(ctx context.Context, name string, bpmn []byte) error {
	return deploy(ctx, s.URL(), name+".bpmn20.xml", "", bpmn)
}

func deploy(ctx context.Context, base, file, tenant string, content []byte) error {
	var body bytes.Buffer
	form := multipart.NewWriter(&body)
	if tenant != "" {
		_ = form.WriteField("tenantId", tenant)
	}
	part, err := form.CreateFormFile("file", file)
	if err == nil {
		_, err = part.Write(content)
	}
	if err == nil {
		err = form.Close()
	}
	if err != nil {
		return fmt.Errorf("deploy %s: %w", file, err)
	}
	status, raw, err := send(ctx, http.MethodPost, base+"/repository/deployments", form.FormDataContentType(), &body)
	if err != nil {
		return fmt.Errorf("deploy %s: %w", file, err)
	}
	if status != http.StatusCreated {
		return fmt.Errorf("deploy %s: status %d: %.500s", file, status, raw)
	}
	return nil
}

func send(ctx context.Context, method, url, media string, body io.Reader) (int, []byte, error) {
	req, err := http.NewRequestWithContext(ctx, method, url, body)
	if err != nil {
		return 0, nil, err
	}
	req.SetBasicAuth(User, Password)
	req.Header.Set("Content-Type", media)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	raw, err := io.ReadAll(resp.Body)
	return resp.StatusCode, raw, err
}
