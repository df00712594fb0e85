package docs

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

var update = flag.Bool("update-cost", false, "write the tables of deploy.md anew, from prices.csv and load.csv")

const (
	costBegin = "<!-- written by `go test ./docs -run TestCost -update-cost`, from prices.csv and load.csv -->\n"
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

// bill is what a rate of messages a second takes in a month. The counts of commits are those of bench/results.md: one for
// a new message; they are in spanner_rate.
func bill(rate float64, in map[string]float64) []item {
	instances := math.Max(math.Min(rate*in["receive_billed"], 1), rate*in["receive"]/in["receive_together"])
	jobs := math.Max(1, math.Ceil(rate/in["relay_rate"]))
	stored := rate * day * (in["processed"]*in["row"] + in["payload"]*in["message"]) / gb
	units := math.Max(1000*rate/in["spanner_rate"], 1000*stored/in["spanner_full"])
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
		{"Spanner", fmt.Sprintf("%.0f processing units", units), units / 1000 * 730, "spanner"},
		{"rows", fmt.Sprintf("%s of ledger and payloads", size(stored)), stored, "rows"},
		{"backups", fmt.Sprintf("%.0f copies of that", in["backups"]), stored * in["backups"], "backup"},
		{"scheduler", fmt.Sprintf("jobs: %.0f", jobs), jobs, "scheduler"},
	}
}

func number(f float64) string { return strconv.FormatFloat(math.Round(f*10)/10, 'f', -1, 64) }

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
	var b strings.Builder
	b.WriteString("\n| USD a month | at 1/s | at 100/s | at 10,000/s |\n|---|---:|---:|---:|\n")
	rates := []float64{1, 100, 10_000}
	var bills [3][]item
	var totals [3]float64
	for i, rate := range rates {
		bills[i] = bill(rate, load)
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

// The one count that the bill stands on is measured: a new message is one commit.
func TestTheBillStandsOnMeasuredRoundTrips(t *testing.T) {
	results, err := os.ReadFile("../bench/results.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| receive: round trips of a new message", "read-write commits a message"} {
		if !strings.Contains(string(results), want) {
			t.Errorf("bench/results.md has no line %q", want)
		}
	}
}
