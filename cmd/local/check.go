package main

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"cloud.google.com/go/spanner"

	"github.com/pubsub-inbox/pubsub-inbox/internal/demoengine"
)

// want is what is to become of a message in the end.
type want struct {
	norow         bool   // it is another message's repetition
	status        string // and the rest only matters if there is a row
	reason        string
	attempts      int64 // -1: two or more, as the clock has it
	deliveries    int64
	engineSaw     string // pattern for the statuses of the engine's answers to it, in order
	conflictsWith *message
}

// row is a message's row in the database.
type row struct {
	id, messageID, dedupeKey, key, status, reason, code, conflictsWith, location string

	attempts, deliveries int64
	sourceAttempts       int64 // 0: it did not come through the dead-letter topic
	engineSaw            []string
}

func (r *row) state() string {
	if r.reason == "" {
		return r.status
	}
	return r.status + "/" + r.reason
}

// Every row, oldest first: the demo has some twenty. A program with more reads by index, as inboxctl does.
const sqlRows = `
SELECT m.InboxId, IFNULL(m.MessageId, ''), IFNULL(m.CorrelationKey, ''), m.Status, IFNULL(m.Reason, ''), IFNULL(m.ConflictsWith, ''),
       m.DedupeKey, IFNULL(m.LastErrorCode, ''), IFNULL(m.PayloadLocation, ''), IFNULL(m.SourceAttempts, 0), m.Attempts, 1 + (SELECT COUNT(*) FROM Deliveries d WHERE d.InboxId = m.InboxId)
FROM Messages m
ORDER BY m.ReceivedAt, m.InboxId`

// look reads every message's row, and what the engines have answered to it.
func (s *story) look(ctx context.Context) error {
	byMessageID, letters := map[string]*row{}, map[string]*row{}
	err := s.db.Single().Query(ctx, spanner.NewStatement(sqlRows)).Do(func(r *spanner.Row) error {
		var x row
		if err := r.Columns(&x.id, &x.messageID, &x.key, &x.status, &x.reason, &x.conflictsWith, &x.dedupeKey, &x.code,
			&x.location, &x.sourceAttempts, &x.attempts, &x.deliveries); err != nil {
			return err
		}
		byMessageID[x.messageID] = &x
		if x.sourceAttempts > 0 {
			letters[x.dedupeKey] = &x
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("read the messages: %w", err)
	}
	saw := map[string][]string{}
	for _, engine := range []*served{s.orders, s.billing} {
		if engine == nil {
			continue
		}
		for _, d := range engine.History() {
			saw[d.InboxID] = append(saw[d.InboxID], strconv.Itoa(d.Status))
		}
	}
	for _, m := range s.messages {
		m.row = byMessageID[m.id]
		if m.letter != "" { // its message id is a new one
			m.row = letters[m.letter]
		}
		if m.row != nil {
			m.row.engineSaw = saw[m.row.id]
		}
	}
	return nil
}

// expect notes a difference.
func (s *story) expect(ok bool, format string, args ...any) {
	if !ok {
		s.differences = append(s.differences, fmt.Sprintf(format, args...))
	}
}

// conclude prints the table and compares everything with what was to be expected.
func (s *story) conclude(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	s.title("All messages")
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  what\tkey\tstatus\treason\tattempts\tdeliveries\tthe engine answered")
	for _, m := range s.messages {
		if m.row == nil {
			fmt.Fprintf(table, "  %s\t%s\t-\t\t-\t-\t(no row of its own)\n", m.what, m.key)
			continue
		}
		fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%d\t%d\t%s\n", m.what, m.key, m.row.status, m.row.reason, m.row.attempts, m.row.deliveries, condense(m.row.engineSaw))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, m := range s.messages {
		s.compare(m)
	}
	s.title("Check")
	if len(s.differences) > 0 {
		for _, d := range s.differences {
			s.say("DIFFERS: %s", d)
		}
		return fmt.Errorf("the demo did not go as expected: %d differences, see above", len(s.differences))
	}
	s.say("%d messages: each has the status, reason, attempts and deliveries it was to have; each order's messages", len(s.messages))
	s.say("reached the engine in the order of publishing, none was acted upon twice, and what one message met stopped no other.")
	return nil
}

func (s *story) compare(m *message) {
	name := fmt.Sprintf("%s (%s, message %s)", m.what, m.key, m.id)
	if m.want.norow || m.row == nil {
		s.expect(m.want.norow, "%s has no row", name)
		s.expect(m.row == nil, "%s has a row of its own", name)
		return
	}
	r, w := m.row, m.want
	s.expect(r.status == w.status && r.reason == w.reason, "%s is %s, want %s", name, r.state(), (&row{status: w.status, reason: w.reason}).state())
	if w.attempts < 0 {
		s.expect(r.attempts >= 2, "%s has %d attempts, want 2 or more", name, r.attempts)
	} else {
		s.expect(r.attempts == w.attempts, "%s has %d attempts, want %d", name, r.attempts, w.attempts)
	}
	s.expect(r.deliveries == w.deliveries, "%s has %d deliveries, want %d", name, r.deliveries, w.deliveries)
	answers := strings.Join(r.engineSaw, " ")
	s.expect(regexp.MustCompile("^("+w.engineSaw+")$").MatchString(answers), "%s was answered %q by the engine, want %s", name, answers, w.engineSaw)
	if w.conflictsWith != nil {
		s.expect(w.conflictsWith.row != nil && r.conflictsWith == w.conflictsWith.row.id, "%s contradicts %q, want the row of message %s", name, r.conflictsWith, w.conflictsWith.id)
	} else {
		s.expect(r.conflictsWith == "", "%s contradicts %s, want none", name, r.conflictsWith)
	}
}

// inOrder checks what advanced the instances of key: these messages, in this order, one after another, none twice.
func (s *story) inOrder(engine *served, key string, messages ...string) []string {
	var got []string
	var last demoengine.Delivery
	for _, d := range engine.History() {
		if d.Key != key || d.Advanced == "" {
			continue
		}
		s.expect(len(got) == 0 || !d.Start.Before(last.End), "%s: %s was called before %s had ended", key, d.Message, last.Message)
		got, last = append(got, d.Message), d
	}
	s.expect(slices.Equal(got, messages), "%s was advanced by %v, want %v", key, got, messages)
	return got
}

// condense writes the same answer several times over as one.
func condense(statuses []string) string {
	var parts []string
	for i := 0; i < len(statuses); {
		n := 1
		for i+n < len(statuses) && statuses[i+n] == statuses[i] {
			n++
		}
		if parts = append(parts, statuses[i]); n > 1 {
			parts[len(parts)-1] += fmt.Sprintf(" (%d times)", n)
		}
		i += n
	}
	return strings.Join(parts, ", ")
}
