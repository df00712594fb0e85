package docs

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update-cost", false, "write the tables of deploy.md anew, from prices.csv, load.csv and bench/results.md")

const (
	costBegin = "<!-- written by `go test ./docs -run TestCost -update-cost`, from prices.csv, load.csv and bench/results.md -->\n"
	costEnd   = "<!-- end of what is written -->\n"
)

// column reads a file of name, number, unit, ... rows.
func column(t *testing.T, name string) (map[string]float64, [][]string) {
	t.Helper()
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	rows, err := csv.NewReader(strings.NewReader(string(text))).ReadAll()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, row := range rows[1:] {
		if values[row[0]], err = strconv.ParseFloat(row[1], 64); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
	return values, rows[1:]
}

// item is a line of the bill: how much of what.
type item struct {
	what, how string
	amount    float64 // in the price's unit, a month
	price     string
}

const (
	month = 730 * 3600.0 // seconds, as Google counts
	day   = 86400.0
	gb    = 1e6 // in KB
)

// counts are what bench/results.md has measured, a message.
type counts struct{ receive, relay float64 }

var (
	// A new message is stored by one transaction without a read, so that its round trips are commits.
	receiveCommits = regexp.MustCompile(`(?m)^\| receive: round trips of a new message +\| +([0-9.]+) \|`)
	relayCommits   = regexp.MustCompile(`(?m)^\| relay: 1000 messages in 100 lanes: read-write commits a message +\| +([0-9.]+) \|`)
)

func measured(results string) (c counts, err error) {
	for pattern, value := range map[*regexp.Regexp]*float64{receiveCommits: &c.receive, relayCommits: &c.relay} {
		m := pattern.FindAllStringSubmatch(results, -1)
		if len(m) != 1 {
			return c, fmt.Errorf("bench/results.md has %d lines for %s", len(m), pattern)
		}
		if *value, err = strconv.ParseFloat(m[0][1], 64); err != nil || *value <= 0 {
			return c, fmt.Errorf("bench/results.md: %s %v", m[0][0], err)
		}
	}
	return c, nil
}

// spannerRate is how many messages a second 1000 processing units store and relay.
func spannerRate(in map[string]float64, c counts) float64 {
	return in["spanner_commits"] / (c.receive + c.relay)
}

// bill is what a rate of messages a second takes in a month.
func bill(rate float64, in map[string]float64, c counts) []item {
	instances := math.Max(math.Min(rate*in["receive_billed"], 1), rate*in["receive"]/in["receive_together"])
	jobs := math.Max(1, math.Ceil(rate/in["relay_rate"]))
	stored := rate * day * (in["processed"]*in["row"] + in["payload"]*in["message"]) / gb
	committing, storing := 1000*rate/spannerRate(in, c), 1000*stored/in["spanner_full"]
	units := math.Max(committing, storing)
	step := 100.0
	if units > 1000 {
		step = 1000
	}
	units = math.Max(100, math.Ceil(units/step)*step)
	busy := instances + jobs*in["relay_busy"]
	return []item{
		{"Pub/Sub", "published and delivered once", 2 * rate * month * math.Max(1, in["message"]) * 1000 / math.Pow(2, 40), "pubsub"},
		{"function requests", "a push a message", rate * month / 1e6, "requests"},
		{"function CPU", fmt.Sprintf("%s receiving and %s relaying, 1 vCPU each", number(instances), number(jobs*in["relay_busy"])), busy * month, "cpu"},
		{"function memory", "the same, 1 GiB each", busy * month, "memory"},
		{"Spanner", fmt.Sprintf("%.0f processing units: %s for commits, %s for rows", units, number(committing), number(storing)), units / 1000 * 730, "spanner"},
		{"rows", fmt.Sprintf("%s of ledger and payloads", size(stored)), stored, "rows"},
		{"backups", fmt.Sprintf("%.0f copies of that", in["backups"]), stored * in["backups"], "backup"},
		{"scheduler", fmt.Sprintf("jobs: %.0f", jobs), jobs, "scheduler"},
	}
}

func number(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

func exact(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func size(gb float64) string {
	if gb >= 1000 {
		return number(gb/1000) + " TB"
	}
	return number(gb) + " GB"
}

func dollars(f float64) string {
	if f < 10 {
		return fmt.Sprintf("%.2f", f)
	}
	text := strconv.FormatFloat(math.Round(f), 'f', -1, 64)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

func TestCostIsWhatThePricesAndTheLoadGive(t *testing.T) {
	prices, priceRows := column(t, "prices.csv")
	load, loadRows := column(t, "load.csv")
	results, err := os.ReadFile("../bench/results.md")
	if err != nil {
		t.Fatal(err)
	}
	c, err := measured(string(results))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	b.WriteString("\n| USD a month | at 1/s | at 100/s | at 10,000/s |\n|---|---:|---:|---:|\n")
	rates := []float64{1, 100, 10_000}
	var bills [3][]item
	var totals [3]float64
	for i, rate := range rates {
		bills[i] = bill(rate, load, c)
	}
	for line := range bills[0] {
		fmt.Fprintf(&b, "| %s |", bills[0][line].what)
		for i := range rates {
			it := bills[i][line]
			cost := it.amount * prices[it.price]
			totals[i] += cost
			fmt.Fprintf(&b, " %s |", dollars(cost))
		}
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "| **together** | **%s** | **%s** | **%s** |\n", dollars(totals[0]), dollars(totals[1]), dollars(totals[2]))
	b.WriteString("| a million messages |")
	for i, rate := range rates {
		fmt.Fprintf(&b, " %s |", dollars(totals[i]/(rate*month/1e6)))
	}
	b.WriteString("\n\nWhat stands behind it:\n\n| | at 1/s | at 100/s | at 10,000/s |\n|---|---|---|---|\n")
	for line := range bills[0] {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", bills[0][line].what, bills[0][line].how, bills[1][line].how, bills[2][line].how)
	}
	b.WriteString("\n| price | USD | for a | as of |\n|---|---:|---|---|\n")
	for _, row := range priceRows {
		if _, err := time.Parse(time.DateOnly, row[3]); err != nil {
			t.Errorf("prices.csv: %v", err)
		}
		fmt.Fprintf(&b, "| [%s](%s) | %s | %s | %s |\n", row[0], row[4], row[1], row[2], row[3])
	}
	b.WriteString("\n| load | value | what it is |\n|---|---:|---|\n")
	for _, row := range loadRows {
		fmt.Fprintf(&b, "| %s | %s %s | %s |\n", row[0], row[1], row[2], row[3])
	}
	b.WriteString("\n| measured, or follows | value | what it is |\n|---|---:|---|\n")
	fmt.Fprintf(&b, "| receive_commits | %s a message | round trips of a new message, in bench/results.md |\n", exact(c.receive))
	fmt.Fprintf(&b, "| relay_commits | %s a message | read-write commits a message, 1000 in 100 lanes, in bench/results.md |\n", exact(c.relay))
	fmt.Fprintf(&b, "| spanner_rate | %s messages/s | on 1000 processing units: spanner_commits / (receive_commits + relay_commits) |\n", number(spannerRate(load, c)))
	b.WriteString("\n")

	text, err := os.ReadFile("deploy.md")
	if err != nil {
		t.Fatal(err)
	}
	before, rest, ok := strings.Cut(string(text), costBegin)
	_, after, ok2 := strings.Cut(rest, costEnd)
	if !ok || !ok2 {
		t.Fatalf("deploy.md has no place for it between %q and %q", costBegin, costEnd)
	}
	want := before + costBegin + b.String() + costEnd + after
	if *update {
		if err := os.WriteFile("deploy.md", []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if string(text) != want {
		t.Error("deploy.md has other numbers; run go test ./docs -run TestCost -update-cost")
	}
}

// Where commits and not rows decide how large Spanner is, each commit more is on the bill.
func TestTheBillFollowsWhatIsMeasured(t *testing.T) {
	load, _ := column(t, "load.csv")
	load["spanner_full"] = math.Inf(1)
	results, err := os.ReadFile("../bench/results.md")
	if err != nil {
		t.Fatal(err)
	}
	spanner := func(results string) float64 {
		t.Helper()
		c, err := measured(results)
		if err != nil {
			t.Fatal(err)
		}
		for _, it := range bill(10_000, load, c) {
			if it.price == "spanner" {
				return it.amount
			}
		}
		t.Fatal("Spanner is not on the bill")
		return 0
	}
	now := spanner(string(results))
	for _, pattern := range []*regexp.Regexp{receiveCommits, relayCommits} {
		at := pattern.FindStringSubmatchIndex(string(results))
		value, err := strconv.ParseFloat(string(results[at[2]:at[3]]), 64)
		if err != nil {
			t.Fatal(err)
		}
		more := spanner(string(results[:at[2]]) + exact(value+1) + string(results[at[3]:]))
		// One commit a message: so many processing units for 730 hours, in whole thousands.
		if want := 10_000 / load["spanner_commits"] * 730; math.Abs(more-now-want) > 730 {
			t.Errorf("one commit more of %s costs %s more, want about %s", pattern, number(more-now), number(want))
		}
	}
}
