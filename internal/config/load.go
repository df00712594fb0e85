package config

import (
	"errors"
	"fmt"
	"os"
	"slices"
)

// The environment variables that name the configuration.
const (
	EnvFile = "INBOX_CONFIG_FILE"
	EnvText = "INBOX_CONFIG"
)

// Load reads the configuration that the environment names: the file INBOX_CONFIG_FILE, or the text INBOX_CONFIG.
func Load(lookup Lookup) (*Config, error) {
	name, text, err := Read(lookup)
	if err != nil {
		return nil, err
	}
	cfg, _, err := Parse(name, text)
	return cfg, err
}

// ErrNoConfiguration says that the environment names none, or two.
var ErrNoConfiguration = errors.New("no configuration")

// Read returns the text of the configuration that the environment names, and what to call it.
func Read(lookup Lookup) (name string, text []byte, err error) {
	file, _ := lookup(EnvFile)
	inline, _ := lookup(EnvText)
	switch {
	case file != "" && inline != "":
		return "", nil, fmt.Errorf("%w: both %s and %s are set; set the one that holds", ErrNoConfiguration, EnvFile, EnvText)
	case file == "" && inline == "":
		return "", nil, fmt.Errorf("%w; set %s to the path of a YAML file, or %s to the text itself", ErrNoConfiguration, EnvFile, EnvText)
	case inline != "":
		return EnvText, []byte(inline), nil
	}
	if text, err = os.ReadFile(file); err != nil {
		return "", nil, fmt.Errorf("read the configuration that %s names: %w", EnvFile, err)
	}
	return file, text, nil
}

// maxFile bounds a configuration: reading one must not be a way to fill the memory.
const maxFile = 4 << 20

// Parse reads a configuration. name stands before each fault, and a schema's path is relative to its folder. A wrong
// file gives Faults, all of them, and no warnings; those of a good one are in the Config too.
func Parse(name string, text []byte) (*Config, []Warning, error) {
	if len(text) > maxFile {
		return nil, nil, Faults{{File: name, Message: fmt.Sprintf("the configuration is larger than %d bytes", maxFile)}}
	}
	cfg := Default()
	plain, err := PlainText(text)
	r := newReader(name, plain)
	if err != nil {
		r.textFault(err)
	} else if root := r.readYAML(plain); root != nil && root.kind != brokenNode {
		r.readConfig(root, &cfg)
		if root.kind == mapNode {
			r.check(&cfg)
		}
	}
	r.unreadMarks()
	byPlace := func(a, b Fault) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	}
	slices.SortStableFunc(r.faults, byPlace)
	if len(r.faults) > 0 {
		return nil, nil, r.faults
	}
	r.lint(&cfg)
	slices.SortStableFunc(r.warnings, func(a, b Warning) int { return byPlace(Fault(a), Fault(b)) })
	cfg.Warnings, cfg.Hints, cfg.file, cfg.places = r.warnings, r.hints, name, r.places
	return &cfg, r.warnings, nil
}
