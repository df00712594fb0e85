package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/pubsub-inbox/pubsub-inbox/internal/inbox"
	"github.com/pubsub-inbox/pubsub-inbox/internal/spannerstore"
)

// finding is one thing that is not as it should be.
type finding struct {
	Kind    string `json:"finding"`
	Object  string `json:"object,omitempty"`
	InboxID string `json:"inboxId,omitempty"`
	Status  string `json:"status,omitempty"`
	Detail  string `json:"detail"`
	Mend    string `json:"mend,omitempty"` // what mends it; none: nothing does, or nothing need
	Mended  bool   `json:"mended"`
	Error   string `json:"error,omitempty"`

	hopeless bool                            // it is a fault that nothing here mends
	mend     func(ctx context.Context) error // errNotNow: it has changed meanwhile
}

// errNotNow: what was found is not so any more.
var errNotNow = errors.New("it has changed meanwhile; left alone")

func (r *reconciler) young(o inbox.FoundObject) bool {
	if r.now().Sub(o.Created) >= r.flags.minAge {
		return false
	}
	r.counts.young++
	return true
}

func (r *reconciler) sliceOfObjects(ctx context.Context, limit int) (last string, err error) {
	found, last, err := r.list(ctx, r.objects.Bucket(), "", limit)
	if err != nil {
		return "", err
	}
	var ids []string
	for _, o := range found {
		if id, _, ok := inbox.OwnerOf(o.Name); ok {
			ids = append(ids, id)
		}
	}
	holdings, err := r.store.Holdings(ctx, ids)
	if err != nil {
		return "", err
	}
	var findings []*finding
	for _, o := range found {
		id, _, ours := inbox.OwnerOf(o.Name)
		h, stored := holdings[id]
		if f := r.ofObject(o, ours, h, stored); f != nil {
			findings = append(findings, f)
		}
	}
	return last, r.handle(ctx, findings)
}

// ofObject says what is wrong with an object. Nil: nothing, or its row's slice says it.
func (r *reconciler) ofObject(o inbox.FoundObject, ours bool, h spannerstore.Holding, stored bool) *finding {
	f := &finding{Object: o.Pinned(), InboxID: h.ID, Status: string(h.Status)}
	if !ours {
		f.Kind, f.Detail = "foreign", "its name is none that the inbox gives"
		return f
	}
	location, err := inbox.ParseLocation(h.PayloadLocation)
	own := stored && err == nil && location.URI() == o.URI()
	switch {
	case own && !h.Status.Finished():
		return nil
	case !o.CustomTime.IsZero():
		return nil
	case own && location.Generation == o.Generation:
		f.Kind, f.Detail, f.Mend = "unmarked", "its message has finished", "marked for deletion"
		at := h.ProcessedAt
		if at.IsZero() { // closed by hand
			at = r.now()
		}
		f.mend = func(ctx context.Context) error { return r.objects.Finish(ctx, o.Object, at) }
		return f
	case r.young(o):
		return nil
	}
	f.Kind, f.Mend = "orphan", "marked for deletion"
	switch {
	case !stored:
		f.Detail = "it has no message"
	case own:
		f.Detail = "its message has finished, and names another generation"
	default:
		f.Detail = "its message keeps its payload elsewhere"
	}
	f.mend = func(ctx context.Context) error { return r.objects.Finish(ctx, o.Object, r.now()) }
	return f
}

func (r *reconciler) sliceOfRows(ctx context.Context, limit int,
	walk func(context.Context, spannerstore.Place, int) ([]spannerstore.Holding, spannerstore.Place, error)) (spannerstore.Place, error) {
	holdings, last, err := walk(ctx, r.cursor.Row, limit)
	if err != nil {
		return spannerstore.Place{}, err
	}
	r.looked += len(holdings)
	r.counts.rows += len(holdings)
	findings := make([]*finding, len(holdings))
	var all errgroup.Group
	all.SetLimit(reconcileParallel)
	for i, h := range holdings {
		if h.PayloadLocation == "" {
			continue
		}
		all.Go(func() error {
			findings[i] = r.ofRow(ctx, h)
			return nil
		})
	}
	_ = all.Wait()
	return last, r.handle(ctx, slices.DeleteFunc(findings, func(f *finding) bool { return f == nil }))
}

// ofRow says what is wrong with the object of a row that is open or parked. Nil: nothing.
func (r *reconciler) ofRow(ctx context.Context, h spannerstore.Holding) *finding {
	f := r.lookAt(ctx, h)
	if f == nil {
		return nil
	}
	// The row was read first, and may be finished by now, or name another object: then it is not as it seemed.
	now, err := r.store.Holdings(ctx, []string{h.ID})
	switch current := now[h.ID]; {
	case err != nil:
		f.fail(err)
	case current.ID == "" || current.Status.Finished() || current.PayloadLocation != h.PayloadLocation:
		return nil
	case current.Status == inbox.Processing && f.mend != nil:
		f.Detail, f.Mend, f.mend = f.Detail+"; it is being handled right now, look again later", "", nil
	}
	return f
}

func (r *reconciler) lookAt(ctx context.Context, h spannerstore.Holding) *finding {
	f := &finding{InboxID: h.ID, Status: string(h.Status), Object: h.PayloadLocation}
	o, err := inbox.ParseLocation(h.PayloadLocation)
	if err != nil {
		f.Kind, f.Detail, f.hopeless = "missing", "where its payload is cannot be read", true
		return f
	}
	f.Object = o.Pinned()
	o.SHA256 = h.PayloadSHA256
	found, err := equal(ctx, r.objects, o)
	switch {
	case err == nil && found.Generation == o.Generation && found.CustomTime.IsZero():
		return nil
	case err == nil && found.Generation == o.Generation:
		f.Kind, f.Detail = "marked", "it is marked for deletion since "+moment(found.CustomTime)
	case err == nil:
		f.Kind, f.Detail = "replaced", fmt.Sprintf("its generation is gone, and generation %d has the same content", found.Generation)
	case errors.Is(err, inbox.ErrObjectMissing):
		f.Kind, f.Detail, f.hopeless = "missing", "it is gone", true
		return f
	case errors.Is(err, inbox.ErrObjectChanged), errors.Is(err, inbox.ErrObjectTooLarge):
		f.Kind, f.Detail, f.hopeless = "changed", "it is gone, and what is there is something else", true
		return f
	default: // not permitted, or not in reach: that says nothing about the object
		f.Kind, f.Detail = "unseen", "it could not be looked at"
		f.fail(err)
		return f
	}
	f.Mend = "made anew"
	f.mend = func(ctx context.Context) error { return r.renew(ctx, h.ID, o) }
	return f
}

// renew makes an object anew and has its row name it. Should the row have finished meanwhile, nobody needs the new one.
func (r *reconciler) renew(ctx context.Context, id string, o inbox.Object) error {
	renewed, err := r.objects.Renew(ctx, o)
	if err != nil {
		return err
	}
	moved, err := r.store.Relocate(ctx, spannerstore.Relocation{ID: id, To: renewed.Location(), Actor: r.flags.act.actor,
		Action: "reconcile", Reason: r.flags.act.reason})
	if err != nil || moved {
		return err
	}
	now, err := r.store.Holdings(ctx, []string{id})
	if err != nil {
		return err
	}
	if h, ok := now[id]; !ok || h.Status.Finished() {
		if err := r.objects.Finish(ctx, renewed, r.now()); err != nil {
			return err
		}
	}
	return errNotNow
}

func (f *finding) fail(err error) { f.Error, f.mend = err.Error(), nil }

// handle mends what was found, if that is wanted, and reports it.
func (r *reconciler) handle(ctx context.Context, findings []*finding) error {
	if r.flags.mend {
		var all errgroup.Group
		all.SetLimit(reconcileParallel)
		for _, f := range findings {
			if f.mend == nil {
				continue
			}
			all.Go(func() error {
				switch err := f.mend(ctx); {
				case errors.Is(err, errNotNow):
					f.Detail, f.Mend = f.Detail+"; "+err.Error(), ""
				case err != nil:
					f.Error = err.Error()
				default:
					f.Mended = true
				}
				return nil
			})
		}
		_ = all.Wait()
	}
	for _, f := range findings {
		if err := r.report(f); err != nil {
			return err
		}
	}
	return nil
}

func (r *reconciler) report(f *finding) error {
	r.counts.findings++
	if f.Mended {
		r.counts.mended++
	}
	if f.hopeless || f.Error != "" {
		r.counts.failed++
	}
	if r.flags.json {
		lines := json.NewEncoder(r.stdout)
		lines.SetEscapeHTML(false)
		return lines.Encode(f)
	}
	text := f.Kind
	if f.Object != "" {
		text += " " + printable(f.Object)
	}
	if f.InboxID != "" {
		text += fmt.Sprintf(" (message %s, %s)", f.InboxID, f.Status)
	}
	text += ": " + f.Detail
	switch {
	case f.Error != "":
		text += "; failed: " + f.Error
	case f.Mended:
		text += "; " + f.Mend
	case f.Mend != "":
		text += "; would be " + f.Mend
	}
	_, err := fmt.Fprintln(r.stdout, text)
	return err
}

func (r *reconciler) summary() error {
	type summary struct {
		Objects   int    `json:"objects"`
		Rows      int    `json:"rows"`
		Young     int    `json:"young"`
		Unmatched int    `json:"unmatched"`
		Forgotten int    `json:"forgotten"`
		Before    int    `json:"before"`
		Findings  int    `json:"findings"`
		Mended    int    `json:"mended"`
		Failed    int    `json:"failed"`
		After     string `json:"after,omitempty"`
	}
	s := summary{Objects: r.counts.objects, Rows: r.counts.rows, Young: r.counts.young, Unmatched: r.counts.unmatched, Forgotten: r.counts.forgotten, Before: r.counts.before,
		Findings: r.counts.findings, Mended: r.counts.mended, Failed: r.counts.failed}
	if r.cursor.Phase != phaseEnd {
		s.After = r.cursor.text()
	}
	if r.flags.json {
		lines := json.NewEncoder(r.stdout)
		return lines.Encode(struct {
			Summary summary `json:"summary"`
		}{s})
	}
	text := fmt.Sprintf("looked at %d objects and %d rows: %d findings, %d mended, %d that nothing has mended", s.Objects, s.Rows, s.Findings, s.Mended, s.Failed)
	if s.Young > 0 {
		text += fmt.Sprintf("; %d objects are younger than %s", s.Young, r.flags.minAge)
	}
	if s.Before > 0 {
		text += fmt.Sprintf("; %d objects were created before %s", s.Before, moment(r.flags.since))
	}
	if s.Forgotten > 0 {
		text += fmt.Sprintf("; %d objects are older than what is remembered: their messages may have been handled and deleted", s.Forgotten)
	}
	if s.Unmatched > 0 {
		text += fmt.Sprintf("; %d objects are none of the route", s.Unmatched)
	}
	if s.After != "" {
		text += "\nnot complete; go on with --after " + s.After
	}
	_, err := fmt.Fprintln(r.stdout, text)
	return err
}
