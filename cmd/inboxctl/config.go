package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/pubsub-inbox/pubsub-inbox/internal/config"
	"github.com/pubsub-inbox/pubsub-inbox/internal/wiring"
)

func (a *app) configCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use: "config", Short: "Check configurations", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return usage("config needs a command: check") },
	}
	cmd.AddCommand(a.configCheckCommand())
	return cmd
}

func (a *app) configCheckCommand() *cobra.Command {
	var against string
	var asJSON bool
	cmd := &cobra.Command{
		Use: "check [FILE]", Short: "Say what is wrong with a configuration, and what a change does",
		Long: `Say everything that is wrong with a configuration, each fault with its line and column, as a function would when it
starts (exit code 1); what works, and is probably not as meant; and, as a hint, a limit to know of (exit code
0). --against OLD names each change that touches messages in flight, and what it does to them. FILE may be "-": standard
input. Without FILE the configuration is what $INBOX_CONFIG_FILE or $INBOX_CONFIG says.

Not checked: whether engines and accounts exist, and whether the environment variables that hold secrets are set.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			file := ""
			if len(args) > 0 {
				file = args[0]
			}
			return a.checkConfig(file, against, asJSON)
		},
	}
	cmd.Flags().StringVar(&against, "against", "", "the configuration that is deployed now")
	cmd.Flags().BoolVar(&asJSON, "json", false, "one JSON object: faults, warnings, hints, changes")
	return cmd
}

// report is what a check says.
type report struct {
	File     string       `json:"file"`
	Against  string       `json:"against,omitempty"`
	OK       bool         `json:"ok"`
	Faults   []jsonFault  `json:"faults"`
	Warnings []jsonFault  `json:"warnings"`
	Hints    []jsonFault  `json:"hints"`
	Changes  []jsonChange `json:"changes"`

	text []string
}

type jsonFault struct {
	File    string `json:"file"`
	Line    int    `json:"line"`
	Column  int    `json:"column"`
	Path    string `json:"path"`
	Message string `json:"message"`
}

type jsonChange struct {
	Route  string `json:"route"`
	Field  string `json:"field"`
	Old    string `json:"old"`
	New    string `json:"new"`
	Effect string `json:"effect"`
}

func (a *app) checkConfig(file, against string, asJSON bool) error {
	if file == "-" && against == "-" {
		return usage("only one of the files can be standard input")
	}
	file, text, err := a.readFile(file)
	if err != nil {
		return err
	}
	r := report{File: file, Against: against, Faults: []jsonFault{}, Warnings: []jsonFault{}, Hints: []jsonFault{}, Changes: []jsonChange{}}
	cfg, err := r.check(file, text, true)
	if err != nil {
		return err
	}
	var old *config.Config
	if against != "" {
		if _, text, err = a.readFile(against); err != nil {
			return err
		}
		if old, err = r.check(against, text, false); err != nil {
			return err
		}
	}
	r.OK = len(r.Faults) == 0
	if cfg != nil && old != nil {
		for _, c := range config.Compare(old, cfg) {
			r.Changes = append(r.Changes, jsonChange(c))
			r.text = append(r.text, "change: "+c.String())
		}
	}
	if r.OK && len(r.Warnings) == 0 {
		r.text = append(r.text, file+": nothing to say against it")
	}
	if r.OK && against != "" && len(r.Changes) == 0 {
		r.text = append(r.text, "no change touches messages in flight")
	}
	if err := r.print(a.stdout, asJSON); err != nil {
		return err
	}
	if !r.OK {
		return errReported
	}
	return nil
}

// check puts into the report what is to be said of a file. The configuration is nil if it cannot be read.
func (r *report) check(file string, text []byte, warn bool) (*config.Config, error) {
	cfg, warnings, err := config.Parse(file, text)
	var faults config.Faults
	if err != nil && !errors.As(err, &faults) {
		return nil, err
	}
	if cfg != nil {
		// The adapters have rules of their own. Secrets are set where the functions run.
		if _, err := wiring.Engines(cfg, func(string) (string, bool) { return "secret", true }); err != nil && !errors.As(err, &faults) {
			return nil, err
		}
	}
	for _, f := range faults {
		r.Faults = append(r.Faults, jsonFault(f))
		r.text = append(r.text, f.String())
	}
	if !warn || cfg == nil {
		return cfg, nil
	}
	for _, w := range warnings {
		r.Warnings = append(r.Warnings, jsonFault(w))
		r.text = append(r.text, w.String()+" (warning)")
	}
	for _, h := range cfg.Hints {
		r.Hints = append(r.Hints, jsonFault(h))
		r.text = append(r.text, h.String()+" (hint)")
	}
	return cfg, nil
}

// readFile reads a file, standard input for "-", or what the environment names for "". name is what to call it.
func (a *app) readFile(file string) (name string, text []byte, err error) {
	switch file {
	case "":
		name, text, err = config.Read(a.lookup)
		if errors.Is(err, config.ErrNoConfiguration) {
			return "", nil, usage("name a file to check; the environment names %v", err)
		}
		return name, text, err
	case "-":
		text, err = io.ReadAll(a.stdin)
	default:
		text, err = os.ReadFile(file)
	}
	if err != nil {
		return "", nil, fmt.Errorf("read the configuration: %w", err)
	}
	return file, text, nil
}

func (r *report) print(w io.Writer, asJSON bool) error {
	if asJSON {
		lines := json.NewEncoder(w)
		lines.SetEscapeHTML(false)
		return lines.Encode(r)
	}
	for _, line := range r.text {
		if _, err := fmt.Fprintln(w, line); err != nil {
			return err
		}
	}
	return nil
}
