package main

import (
	"fmt"
	"maps"
	"strconv"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// Known is an object as the log has recorded it last.
type Known struct {
	Revision int64
	Value    model.ValueOrHash
	Version  int64 // the number of its writes; 0 where the log does not have its creation
}

// Moment is a state that the log claims for a source at a revision: after its first list, and after a GAP.
type Moment struct {
	Revision int64
	After    string
	State    map[string]Known
}

// Stretch is a GAP of a source.
type Stretch struct {
	Seq      int64
	Why      string
	From, To int64
	At       time.Time
	// The newest revision before the GAP, where its end is not known, and its changes that are recorded nevertheless.
	Open    int64
	Changes []string
}

// Reading is the log of one source as etcd's judge reads it.
type Reading struct {
	Source     Source
	Operations []model.WatchOperation
	Moments    []Moment
	Gaps       []Stretch
	Seen       map[string]bool // key and revision of each change that is recorded as the API server brought it

	recording *Recording
	state     map[string]Known
	operation *model.WatchOperation
	early     []pending // before the first known position
	pending   []pending // no bookmark covers them yet
	last      int64     // revision of the newest event of the operation
	floor     int64     // end of the last GAP: what it left is being written, and the position follows
	bookmark  int64     // newest bookmark of the operation
	inferring *Moment
}

type pending struct {
	entry *Entry
	event model.WatchEvent
}

// read turns the log into watch operations: one for each stretch between two GAPs of a source and for each life of the daemon.
// The order is that of seq. A durable position becomes a progress notification where nothing behind it is recorded yet.
func (r *Recording) read() ([]*Reading, error) {
	readings := map[int64]*Reading{}
	order := []*Reading{}
	for _, source := range r.Sources {
		reading := &Reading{Source: source, recording: r, state: map[string]Known{}, Seen: map[string]bool{}}
		readings[source.ID] = reading
		order = append(order, reading)
	}
	next := 0
	upto := func(head int64) error {
		for ; next < len(r.Entries) && r.Entries[next].Seq <= head; next++ {
			reading := readings[r.Owners[next]]
			if reading == nil {
				return fmt.Errorf("seq %d belongs to no source", r.Entries[next].Seq)
			}
			if err := reading.take(&r.Entries[next]); err != nil {
				return fmt.Errorf("seq %d: %w", r.Entries[next].Seq, err)
			}
		}
		return nil
	}
	for _, look := range r.Looks {
		if err := upto(look.Head); err != nil {
			return nil, err
		}
		for _, reading := range order {
			if position, ok := look.Positions[strconv.FormatInt(reading.Source.ID, 10)]; ok {
				reading.look(position, look.End)
			}
		}
	}
	if next < len(r.Entries) {
		return nil, fmt.Errorf("%d entries are behind the last look", len(r.Entries)-next)
	}
	for _, reading := range order {
		reading.settle()
		reading.close()
	}
	return order, nil
}

func (r *Reading) take(entry *Entry) error {
	if entry.Gap != nil {
		r.gap(entry)
		return nil
	}
	if entry.Evidence != "inferred" {
		r.settle()
	}
	event, err := r.event(entry)
	if err != nil {
		return err
	}
	switch {
	case r.operation == nil:
		r.early = append(r.early, pending{entry, event})
	case entry.seen():
		r.pending = append(r.pending, pending{entry, event})
		r.last = event.Revision
	}
	if entry.seen() {
		r.Seen[at(event.Key, event.Revision)] = true
	}
	return nil
}

func at(key string, revision int64) string { return fmt.Sprintf("%s@%d", key, revision) }

// event is an entry as etcd would tell it, and moves the state.
func (r *Reading) event(entry *Entry) (model.WatchEvent, error) {
	key := r.recording.key(entry)
	before, had := r.state[key]
	event := model.WatchEvent{PersistedEvent: model.PersistedEvent{Revision: entry.revision()}}
	event.Key, event.Type = key, model.PutOperation
	if entry.Type == "DELETED" {
		event.Type = model.DeleteOperation
		if entry.seen() && had && before.Version > 0 {
			event.PrevValue = previous(before, r.recording.value(key, entry.Object))
		}
		delete(r.state, key)
		return event, nil
	}
	event.IsCreate = entry.Type == "ADDED"
	event.Value = r.recording.value(key, entry.Object)
	known := Known{Revision: event.Revision, Value: event.Value}
	switch {
	case !entry.seen():
	case event.IsCreate:
		known.Version = 1
	case had && before.Version > 0:
		known.Version = before.Version + 1
		if entry.Change != nil && !r.recording.blank(key) {
			value, revision, err := undo(entry.Object, entry.Change.Patch)
			if err != nil {
				return event, err
			}
			before.Revision = revision
			event.PrevValue = previous(before, value)
		}
	}
	r.state[key] = known
	return event, nil
}

func previous(before Known, value model.ValueOrHash) *model.ValueRevision {
	return &model.ValueRevision{Value: value, ModRevision: before.Revision, Version: before.Version}
}

// look takes a durable position.
func (r *Reading) look(position int64, end bool) {
	position = max(position, r.floor)
	if r.operation == nil {
		base := map[string]Known{}
		behind := []pending{}
		for _, one := range r.early {
			switch {
			case one.entry.seen() && one.event.Revision > position:
				behind = append(behind, one)
			case one.event.Type == model.DeleteOperation:
				delete(base, one.event.Key)
			default:
				base[one.event.Key] = Known{Revision: one.event.Revision, Value: one.event.Value}
			}
		}
		r.early = nil
		r.Moments = append(r.Moments, Moment{position, "its first list", base})
		r.begin(position)
		for _, one := range behind {
			r.pending = append(r.pending, one)
			r.last = one.event.Revision
		}
	} else if position >= r.last || position < r.bookmark {
		r.flush(len(r.pending))
		r.notify(position)
	}
	if end {
		// What no position covers is behind the one from which the next life resumes.
		covered := 0
		for covered < len(r.pending) && r.pending[covered].event.Revision <= position {
			covered++
		}
		r.flush(covered)
		behind := r.pending
		r.notify(position)
		r.close()
		r.begin(position)
		r.pending = behind
		if len(behind) > 0 {
			r.last = behind[len(behind)-1].event.Revision
		}
	}
}

func (r *Reading) gap(entry *Entry) {
	r.settle()
	gap := Stretch{Seq: entry.Seq, At: entry.Time, Why: entry.Gap.Why, From: number(entry.Gap.From), To: number(entry.Gap.To)}
	if r.operation != nil {
		// A watch does not say where a revision ends, so the newest one may have lost changes. The GAP begins before it.
		whole := len(r.pending)
		for ; whole > 0 && r.pending[whole-1].event.Revision == r.last && r.last > gap.From; whole-- {
			gap.Open = r.last
			gap.Changes = append(gap.Changes, at(r.pending[whole-1].event.Key, r.last))
		}
		r.flush(whole)
		r.pending = nil
		if gap.From > 0 {
			r.notify(gap.From)
		}
		r.close()
	}
	r.Gaps = append(r.Gaps, gap)
	r.floor = gap.To
	if gap.To > 0 {
		r.begin(gap.To)
		r.inferring = &Moment{gap.To, fmt.Sprintf("the GAP at seq %d", gap.Seq), nil}
	}
}

// settle keeps the state after the inferred entries that follow a GAP.
func (r *Reading) settle() {
	if r.inferring != nil {
		r.inferring.State = maps.Clone(r.state)
		r.Moments = append(r.Moments, *r.inferring)
		r.inferring = nil
	}
}

func (r *Reading) begin(position int64) {
	r.operation = &model.WatchOperation{Request: model.WatchRequest{
		Key: r.Source.Prefix, WithPrefix: true, Revision: position + 1, WithProgressNotify: true, WithPrevKV: true,
	}}
	r.pending, r.last, r.bookmark = nil, 0, 0
}

func (r *Reading) close() {
	if r.operation == nil {
		return
	}
	r.flush(len(r.pending))
	r.Operations = append(r.Operations, *r.operation)
	r.operation = nil
}

// flush makes responses of the first pending events, each with what one revision brings.
func (r *Reading) flush(count int) {
	for i := 0; i < count; {
		end := i + 1
		for end < count && r.pending[end].event.Revision == r.pending[i].event.Revision {
			end++
		}
		response := model.WatchResponse{Revision: r.pending[i].event.Revision}
		for _, one := range r.pending[i:end] {
			response.Events = append(response.Events, one.event)
		}
		r.operation.Responses = append(r.operation.Responses, response)
		i = end
	}
	r.pending = r.pending[count:]
}

func (r *Reading) notify(position int64) {
	if position == r.bookmark {
		return
	}
	r.bookmark = position
	r.operation.Responses = append(r.operation.Responses, model.WatchResponse{IsProgressNotify: true, Revision: position})
}
