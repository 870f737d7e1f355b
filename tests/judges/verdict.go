package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/anishathalye/porcupine"
	"go.uber.org/zap"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/etcd/tests/v3/robustness/validate"
)

// shown is how many findings of a kind are worth reading.
const shown = 5

// Counts are what was judged.
type Counts struct {
	Revisions, Compactions, Entries, Sources        int
	Operations, Events, Bookmarks, Previous, Values int
	Shared, Moments, Gaps, Missing, Quiet, Open     int
	Informed, Resyncs, Snapshots, Excused           int
}

// Judgement is what the judges find of one recording.
type Judgement struct {
	Found  []string
	Counts Counts
}

func judge(lg *zap.Logger, truth *Truth, recording *Recording) (judgement Judgement) {
	found := func(what string, these ...string) {
		for i, one := range these {
			if i == shown {
				one = fmt.Sprintf("and %d more", len(these)-shown)
			}
			if i <= shown {
				judgement.Found = append(judgement.Found, what+": "+one)
			}
		}
	}
	readings, err := recording.read()
	if err != nil {
		found("reading", err.Error())
		return judgement
	}
	if err := guarantees(lg, truth, recording, readings); err != nil {
		found("etcd", err.Error())
	}
	for _, reading := range readings {
		found("state of "+reading.Source.Name, truth.moments(reading)...)
		found("gaps of "+reading.Source.Name, truth.gaps(recording, reading, &judgement.Counts)...)
	}
	found("informers", recording.informed(readings, &judgement.Counts)...)
	judgement.Counts.add(truth, recording, readings)
	return judgement
}

// guarantees has etcd's own suite judge the operations. Its judge gives up where a version was never written.
func guarantees(lg *zap.Logger, truth *Truth, recording *Recording, readings []*Reading) (err error) {
	defer func() {
		if broken := recover(); broken != nil {
			err = fmt.Errorf("the judge gave up: %v", broken)
		}
	}()
	reports := []report.ClientReport{{ClientID: 0, KeyValue: []porcupine.Operation{recording.read_first()}}}
	for _, reading := range readings {
		reports = append(reports, report.ClientReport{ClientID: int(reading.Source.ID), Watch: reading.Operations})
	}
	// Keys that expire with one lease go with one revision.
	config := validate.Config{ExpectRevisionUnique: false}
	return validate.ValidateAndReturnVisualize(lg, config, reports, truth.Requests, time.Minute).Error()
}

// read_first is the read that found etcd empty.
func (r *Recording) read_first() porcupine.Operation {
	request := model.RangeRequest{RangeOptions: model.RangeOptions{Start: "\x00", Limit: 1}}
	answer := model.EtcdResponse{Range: &model.RangeResponse{KVs: []model.KeyValue{}}, Revision: r.First}
	return porcupine.Operation{
		ClientId: 0, Call: 1, Return: 2,
		Input:  model.EtcdRequest{Type: model.Range, Range: &request},
		Output: model.MaybeEtcdResponse{EtcdResponse: answer},
	}
}

// moments compares what the log says that there is with what etcd had.
func (t *Truth) moments(reading *Reading) (found []string) {
	for _, moment := range reading.Moments {
		state, err := t.state(reading.Source.Prefix, moment.Revision)
		if err != nil {
			found = append(found, fmt.Sprintf("after %s: %v", moment.After, err))
			continue
		}
		for key, known := range moment.State {
			had, ok := state[key]
			switch {
			case !ok:
				found = append(found, fmt.Sprintf("after %s: %s is gone at %d", moment.After, key, moment.Revision))
			case had.ModRevision != known.Revision || had.Value != known.Value:
				found = append(found, fmt.Sprintf("after %s: %s is %+v at %d, and not %+v", moment.After, key, had, moment.Revision, known))
			}
			delete(state, key)
		}
		for key := range state {
			found = append(found, fmt.Sprintf("after %s: %s is missing at %d", moment.After, key, moment.Revision))
		}
	}
	return found
}

// gaps holds each GAP to what etcd had: it covers a change that the log lacks, none that the log has, and ends with what was
// compacted then.
func (t *Truth) gaps(recording *Recording, reading *Reading, counts *Counts) (found []string) {
	for _, gap := range reading.Gaps {
		name := fmt.Sprintf("seq %d (%s, %d to %d)", gap.Seq, gap.Why, gap.From, gap.To)
		missing := 0
		open := slices.Clone(gap.Changes)
		for _, event := range t.events(reading.Source.Prefix, gap.From, gap.To) {
			change := at(event.Key, event.Revision)
			switch {
			case !reading.Seen[change]:
				missing++
			case slices.Contains(open, change):
				open = slices.DeleteFunc(open, func(one string) bool { return one == change })
				counts.Open++
			default:
				found = append(found, fmt.Sprintf("%s is too wide: the log has %s", name, change))
			}
		}
		if len(open) > 0 {
			found = append(found, fmt.Sprintf("before %s the log has %v, which never were", name, open))
		}
		// Of a source without a change only etcd could say so, and it has forgotten. What is behind the newest compaction could be had.
		forgotten := recording.forgotten(gap.At)
		if missing == 0 && gap.From >= min(gap.To, forgotten) {
			found = append(found, name+" is not real: no change is missing")
		}
		if gap.To > forgotten {
			found = append(found, fmt.Sprintf("%s is too wide: etcd had everything from %d on", name, forgotten))
		}
		if missing == 0 {
			counts.Quiet++
		}
		counts.Missing += missing
	}
	counts.Gaps += len(reading.Gaps)
	return found
}

// forgotten is the oldest revision that etcd had at a time.
func (r *Recording) forgotten(at time.Time) (oldest int64) {
	for _, compaction := range r.Compactions {
		if !compaction.Asked.After(at) {
			oldest = max(oldest, compaction.Revision)
		}
	}
	return oldest
}

func (c *Counts) add(truth *Truth, recording *Recording, readings []*Reading) {
	c.Entries, c.Sources = len(recording.Entries), len(recording.Sources)
	c.Compactions = truth.Compactions
	if last := len(truth.Replay.Events) - 1; last >= 0 {
		c.Revisions = int(truth.Replay.Events[last].Revision)
	}
	for _, reading := range readings {
		c.Operations += len(reading.Operations)
		c.Moments += len(reading.Moments)
		for _, operation := range reading.Operations {
			for _, response := range operation.Responses {
				c.Events += len(response.Events)
				if response.IsProgressNotify {
					c.Bookmarks++
				}
				if len(response.Events) > 1 {
					c.Shared++
				}
				for _, event := range response.Events {
					if event.PrevValue != nil {
						c.Previous++
					}
					if event.Type == model.PutOperation && !recording.blank(event.Key) {
						c.Values++
					}
				}
			}
		}
	}
}

// short is the guarantee that an error of etcd's suite names.
func short(found []string) string {
	return strings.Join(found, "; ")
}
