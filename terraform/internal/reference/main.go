// Command reference writes the inputs and outputs of the Terraform modules into terraform/README.md, between its markers:
// `make generate`. A test of package terraform fails where they differ.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/pubsub-inbox/pubsub-inbox/terraform/internal/reference/readme"
)

func main() {
	dir := "terraform"
	if len(os.Args) > 1 {
		dir = os.Args[1]
	}
	if err := run(dir); err != nil {
		fmt.Fprintf(os.Stderr, "reference: %v\n", err)
		os.Exit(1)
	}
}

func run(dir string) error {
	name := filepath.Join(dir, "README.md")
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	changed, err := readme.Renew(dir, string(text))
	if err != nil {
		return err
	}
	return os.WriteFile(name, []byte(changed), 0o644)
}
