package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"strings"
	"text/tabwriter"
)

// find looks up an order's process instance, which must be the only one.
func (s *flowableStory) find(ctx context.Context, o *order) error {
	if o.instance != "" {
		return nil
	}
	var page struct{ Data []struct{ ID string } }
	err := s.flowable.Call(ctx, http.MethodPost, "/query/historic-process-instances", map[string]any{"processBusinessKey": o.id}, &page)
	if err != nil {
		return err
	}
	if len(page.Data) != 1 {
		return fmt.Errorf("%s has %d process instances, want one", o.id, len(page.Data))
	}
	o.instance = page.Data[0].ID
	return nil
}

func (s *flowableStory) count(ctx context.Context, path string, filter map[string]any) (int, error) {
	var page struct{ Total int }
	err := s.flowable.Call(ctx, http.MethodPost, path, filter, &page)
	return page.Total, err
}

// invoices are the ledger's invoices of an order.
func (s *flowableStory) invoices(o *order) []string {
	entries, err := os.ReadDir(s.ledger())
	if err != nil {
		s.expect(errors.Is(err, fs.ErrNotExist), "the ledger cannot be read: %v", err)
		return nil
	}
	var found []string
	for _, e := range entries {
		if number := strings.TrimSuffix(e.Name(), ".json"); number == "INV-"+o.id {
			found = append(found, number)
		}
	}
	return found
}

// conclude prints what became of everything and compares it with what was to be expected.
func (s *flowableStory) conclude(ctx context.Context) error {
	if err := s.look(ctx); err != nil {
		return err
	}
	s.title("All messages")
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  what\torder\tstatus\treason\tattempts")
	for _, m := range s.messages {
		if m.row != nil {
			fmt.Fprintf(table, "  %s\t%s\t%s\t%s\t%d\n", m.what, m.key, m.row.status, m.row.reason, m.row.attempts)
		}
		s.compare(m)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	s.title("All work orders")
	table = tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "  order\tprocess instances\tended\tmessages taken\tinvoice jobs done\tledger")
	for _, o := range s.orders {
		counts, err := s.counts(ctx, o)
		if err != nil {
			return err
		}
		ledger := s.invoices(o)
		fmt.Fprintf(table, "  %s\t%d\t%d\t%d\t%d\t%s\n", o.id, counts[0], counts[1], counts[2], counts[3], strings.Join(ledger, " "))
		s.expect(counts == [4]int{1, 1, 2, 1}, "%s has %v of these, want one instance, ended, that took two messages and did one invoice job", o.id, counts)
		s.expect(len(ledger) == 1, "%s has the invoices %v, want one", o.id, ledger)
	}
	if err := table.Flush(); err != nil {
		return err
	}
	s.title("Check")
	if len(s.differences) > 0 {
		for _, d := range s.differences {
			s.say("DIFFERS: %s", d)
		}
		return fmt.Errorf("the demo did not go as expected: %d differences, see above", len(s.differences))
	}
	s.say("%d messages: each has the status, the reason and the attempts it was to have; none is parked. %d work orders: each", len(s.messages), len(s.orders))
	s.say("has one process instance, which took both of its messages and has ended, and one invoice.")
	return nil
}

// counts are, of an order: its process instances, those of them that have ended, the messages that they took, and the
// invoice tasks that they finished.
func (s *flowableStory) counts(ctx context.Context, o *order) (n [4]int, err error) {
	if n[0], err = s.count(ctx, "/query/historic-process-instances", map[string]any{"processBusinessKey": o.id}); err != nil {
		return n, err
	}
	if n[1], err = s.count(ctx, "/query/historic-process-instances", map[string]any{"processBusinessKey": o.id, "finished": true}); err != nil {
		return n, err
	}
	if n[2], err = s.markers(ctx, o); err != nil {
		return n, err
	}
	var page struct{ Total int }
	query := url.Values{"processInstanceId": {o.instance}, "activityId": {"createInvoice"}, "finished": {"true"}}
	err = s.flowable.Call(ctx, http.MethodGet, "/history/historic-activity-instances?"+query.Encode(), nil, &page)
	n[3] = page.Total
	return n, err
}

// markers counts the messages that an order's instance took: each leaves a variable.
func (s *flowableStory) markers(ctx context.Context, o *order) (int, error) {
	var page struct {
		Data []struct{ Variable struct{ Name string } }
	}
	query := url.Values{"processInstanceId": {o.instance}, "size": {"1000"}}
	err := s.flowable.Call(ctx, http.MethodGet, "/history/historic-variable-instances?"+query.Encode(), nil, &page)
	n := 0
	for _, v := range page.Data {
		if strings.HasPrefix(v.Variable.Name, "inboxMsg_") {
			n++
		}
	}
	return n, err
}
