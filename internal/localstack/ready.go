package localstack

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// WriteReadyFile writes the stack's addresses to path, as one JSON object. Who waits for the file never reads a part of
// it: it is written beside its place, and moved there.
func (s *Stack) WriteReadyFile(path string) error {
	text, err := json.MarshalIndent(s.Addresses, "", "  ")
	if err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+"-*")
	if err != nil {
		return fmt.Errorf("write the ready file: %w", err)
	}
	_, err = f.Write(append(text, '\n'))
	err = errors.Join(err, f.Chmod(0o644), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("write the ready file: %w", err), os.Remove(f.Name()))
	}
	return nil
}
