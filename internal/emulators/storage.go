package emulators

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"cloud.google.com/go/storage"
	"github.com/fsouza/fake-gcs-server/fakestorage"
	"google.golang.org/api/googleapi"
	"google.golang.org/api/option"
)

// StartStorage returns a Cloud Storage server that answers: the one of STORAGE_EMULATOR_HOST, or a new one
// inside this process, in memory. The context bounds the start only.
func StartStorage(ctx context.Context) (*Emulator, error) {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if e, err := external(ctx, "STORAGE_EMULATOR_HOST", storageAnswers); e != nil || err != nil {
		return e, err
	}
	// We listen ourselves, because the server has to know its own address (object reads and resumable
	// uploads go by it) before it is made.
	l, err := net.Listen("tcp", "localhost:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the Cloud Storage server: %w", err)
	}
	host := fmt.Sprintf("localhost:%d", l.Addr().(*net.TCPAddr).Port)
	fake, err := fakestorage.NewServerWithOptions(fakestorage.Options{
		NoListener:  true,
		Scheme:      "http",
		PublicHost:  host,
		ExternalURL: "http://" + host,
	})
	if err != nil {
		return nil, errors.Join(fmt.Errorf("make the Cloud Storage server: %w", err), l.Close())
	}
	server := &http.Server{Handler: fake.HTTPHandler(), ReadHeaderTimeout: 10 * time.Second}
	served := make(chan error, 1)
	go func() { served <- server.Serve(l) }()
	stop := func() error {
		err := server.Close()
		<-served
		fake.Stop()
		return err
	}
	if err := storageAnswers(ctx, host); err != nil {
		return nil, errors.Join(err, stop())
	}
	return &Emulator{host: host, owned: true, end: stop}, nil
}

// StorageClientOptions are what a Cloud Storage client needs to talk to the server at host without any
// environment variable. Together with the option storage.WithJSONReads nothing else is needed; without it
// the client reads objects through the XML API, which it also looks for at this endpoint.
func StorageClientOptions(host string) []option.ClientOption {
	return []option.ClientOption{
		option.WithEndpoint("http://" + bareHost(host) + "/storage/v1/"),
		option.WithoutAuthentication(),
	}
}

// NewBucket makes a bucket, unless it is there.
func NewBucket(ctx context.Context, host, project, name string) error {
	client, err := storage.NewClient(ctx, StorageClientOptions(host)...)
	if err != nil {
		return fmt.Errorf("connect to the Cloud Storage server at %s: %w", host, err)
	}
	defer client.Close()
	err = client.Bucket(name).Create(ctx, project, nil)
	if conflict := (*googleapi.Error)(nil); errors.As(err, &conflict) && conflict.Code == http.StatusConflict {
		return nil
	}
	if err != nil {
		return fmt.Errorf("make the bucket %s: %w", name, err)
	}
	return nil
}

// storageAnswers asks for the buckets of a project: servers other than fake-gcs-server have no health check.
func storageAnswers(ctx context.Context, host string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+host+"/storage/v1/b?project=is-it-there", nil)
	if err != nil {
		return fmt.Errorf("ask %s for its buckets: %w", host, err)
	}
	// A client of its own: no proxy from the environment, and no connection left behind.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return fmt.Errorf("ask %s for its buckets: %w", host, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("ask %s for its buckets: %s", host, resp.Status)
	}
	return nil
}
