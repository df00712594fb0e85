package config

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/santhosh-tekuri/jsonschema/v6"
)

// Schema is a route's JSON Schema. https://json-schema.org/draft/2020-12
type Schema struct {
	Path   string // the file it came from; empty: inline
	Line   int
	Column int

	document any // as it was read
	compiled *jsonschema.Schema
}

// Compiled returns the schema itself.
func (s *Schema) Compiled() *jsonschema.Schema { return s.compiled }

const maxSchema = 1 << 20

func (r *reader) readSchema(n *node, path string) *Schema {
	s := &Schema{Line: n.line, Column: n.column}
	var document any
	var err error
	switch n.kind {
	case scalarNode:
		s.Path = n.text
		document, err = readSchemaFile(filepath.Join(r.folder(), n.text), filepath.IsAbs(n.text), n.text)
	case mapNode:
		if n.marked() {
			return nil // which is said where the mark is
		}
		document, err = n.json()
	default:
		err = fmt.Errorf("this must be the path of a JSON Schema, or the schema itself")
	}
	s.document = document
	if err == nil {
		s.compiled, err = compileSchema(document)
	}
	if err != nil {
		r.fault(path, "%v", err)
		return nil
	}
	return s
}

func readSchemaFile(joined string, absolute bool, path string) (any, error) {
	if absolute {
		joined = path
	}
	// Only regular files: a device or a pipe would never end.
	info, err := os.Stat(joined)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be read; the path is relative to the configuration: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("the schema %s is not a regular file", path)
	}
	f, err := os.Open(joined)
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxSchema+1))
	if err != nil {
		return nil, fmt.Errorf("the schema cannot be read: %w", err)
	}
	if len(text) > maxSchema {
		return nil, fmt.Errorf("the schema is larger than %d bytes", maxSchema)
	}
	text, err = PlainText(text)
	var wrong *TextError
	if errors.As(err, &wrong) {
		return nil, fmt.Errorf("the schema cannot be read: line %d, column %d: %w", wrong.Line, wrong.Column, wrong)
	}
	document, err := jsonschema.UnmarshalJSON(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("the schema is not JSON: %w", err)
	}
	return document, nil
}

func compileSchema(document any) (compiled *jsonschema.Schema, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("this is not a JSON Schema (%v)", p)
		}
	}()
	c := jsonschema.NewCompiler()
	// No schema is loaded from elsewhere: a start must not depend on another server.
	c.UseLoader(jsonschema.SchemeURLLoader{})
	const url = "schema:"
	if err := c.AddResource(url, document); err != nil {
		return nil, fmt.Errorf("this is not a JSON Schema: %w", err)
	}
	compiled, err = c.Compile(url)
	if err != nil {
		return nil, fmt.Errorf("this is not a JSON Schema, or it refers to another one, which is not read: %w", err)
	}
	return compiled, nil
}

// json returns the value as the JSON decoder would.
func (n *node) json() (any, error) {
	switch n.kind {
	case mapNode:
		m := map[string]any{}
		for _, e := range n.entries {
			v, err := e.value.json()
			if err != nil {
				return nil, err
			}
			m[e.key] = v
		}
		return m, nil
	case listNode:
		l := []any{}
		for _, item := range n.items {
			v, err := item.json()
			if err != nil {
				return nil, err
			}
			l = append(l, v)
		}
		return l, nil
	case scalarNode:
		number, ok := n.literal.(yamlNumber)
		if !ok {
			return n.literal, nil
		}
		if !json.Valid([]byte(number)) {
			return nil, fmt.Errorf("line %d: %q is no JSON number", n.line, string(number))
		}
		return json.Number(number), nil
	}
	return nil, nil
}
