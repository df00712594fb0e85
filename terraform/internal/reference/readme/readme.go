// Package readme writes the inputs and outputs of the Terraform modules.
//
// It reads variables.tf and outputs.tf as `terraform fmt` leaves them, line by line, and knows no more of the language
// than that: blocks begin and end in the first column, arguments in the third.
package readme

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

const (
	begin = "<!-- written by `make generate`, from variables.tf and outputs.tf -->\n"
	end   = "<!-- end of what is written -->\n"
)

// Renew returns the README with what the modules below dir say now.
func Renew(dir, readme string) (string, error) {
	before, rest, ok := strings.Cut(readme, begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok || !ok2 {
		return "", fmt.Errorf("README.md has no %q and %q", strings.TrimSpace(begin), strings.TrimSpace(end))
	}
	var b strings.Builder
	for _, module := range []struct{ title, path string }{
		{"The inbox", "."},
		{"modules/database", "modules/database"},
		{"modules/kms_grants", "modules/kms_grants"},
	} {
		if err := describe(&b, module.title, filepath.Join(dir, filepath.FromSlash(module.path))); err != nil {
			return "", err
		}
	}
	return before + begin + "\n" + b.String() + end + after, nil
}

func describe(b *strings.Builder, title, dir string) error {
	inputs, err := blocks(filepath.Join(dir, "variables.tf"), "variable")
	if err != nil {
		return err
	}
	outputs, err := blocks(filepath.Join(dir, "outputs.tf"), "output")
	if err != nil {
		return err
	}
	fmt.Fprintf(b, "## %s\n\n### Inputs\n\n| input | type | default | effect |\n|---|---|---|---|\n", title)
	for _, v := range inputs {
		kind, _, long := strings.Cut(v.args["type"], "({\n")
		if long {
			kind += strings.Repeat(")", strings.Count(kind, "("))
		}
		kind = "`" + kind + "`"
		if long {
			kind += ", below"
		}
		value, ok := v.args["default"]
		switch {
		case !ok:
			value = "required"
		case strings.Contains(value, "\n"):
			return fmt.Errorf("%s: the default of %s has several lines", dir, v.name)
		default:
			value = "`" + value + "`"
		}
		summary, _, _ := strings.Cut(v.description, "\n")
		fmt.Fprintf(b, "| `%s` | %s | %s | %s |\n", v.name, kind, value, summary)
	}
	for _, v := range inputs {
		if !strings.Contains(v.args["type"], "\n") {
			continue
		}
		fmt.Fprintf(b, "\n#### `%s`\n\n", v.name)
		if _, more, ok := strings.Cut(v.description, "\n"); ok {
			fmt.Fprintf(b, "%s\n\n", strings.TrimSpace(more))
		}
		fmt.Fprintf(b, "```hcl\n%s\n```\n", v.args["type"])
	}
	b.WriteString("\n### Outputs\n\n| output | what it is |\n|---|---|\n")
	for _, o := range outputs {
		fmt.Fprintf(b, "| `%s` | %s |\n", o.name, strings.ReplaceAll(o.description, "\n", " "))
	}
	b.WriteString("\n")
	return nil
}

// block is a variable or an output.
type block struct {
	name, description string
	args              map[string]string // as they are written, without the description
}

func blocks(file, kind string) ([]block, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var all []block
	lines := strings.Split(string(text), "\n")
	for i := 0; i < len(lines); i++ {
		name, ok := strings.CutPrefix(lines[i], kind+` "`)
		if !ok {
			continue
		}
		v := block{name: strings.TrimSuffix(name, `" {`), args: map[string]string{}}
		for i++; lines[i] != "}"; i++ {
			line := lines[i]
			key, value, ok := strings.Cut(strings.TrimPrefix(line, "  "), "=")
			key = strings.TrimSpace(key)
			if !ok || strings.HasPrefix(line, "   ") || strings.Contains(key, " ") {
				continue
			}
			value = strings.TrimSpace(value)
			switch {
			case value == "<<-EOT":
				var of []string
				for i++; strings.TrimSpace(lines[i]) != "EOT"; i++ {
					of = append(of, strings.TrimSpace(lines[i]))
				}
				value = strings.Join(of, "\n")
			case strings.HasSuffix(value, "{"):
				for i++; strings.HasPrefix(lines[i], "   "); i++ {
					value += "\n" + strings.TrimPrefix(lines[i], "  ")
				}
				value += "\n" + strings.TrimPrefix(lines[i], "  ")
			}
			if key == "description" {
				v.description = strings.ReplaceAll(strings.Trim(value, `"`), `\"`, `"`)
			} else {
				v.args[key] = value
			}
		}
		if v.description == "" || (kind == "variable" && v.args["type"] == "") {
			return nil, fmt.Errorf("%s: %s has no description, or no type", file, v.name)
		}
		all = append(all, v)
	}
	if len(all) == 0 {
		return nil, fmt.Errorf("%s: found no %s", file, kind)
	}
	return all, nil
}
