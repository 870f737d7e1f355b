package main

import (
	"fmt"
	"maps"
	"slices"
)

// timeline is what the log says of one source, revision by revision.
type timeline struct {
	steps    []step
	gaps     []Stretch
	versions map[string]*Entry // each version that the log has
	gone     map[string]*Entry // deletions by uid
}

type step struct {
	revision int64
	key      string
	version  int64 // 0 for a deletion
}

// informed compares the log with what informers of the same resources have told: each event is an entry with the same object, and
// each store is the state that the log has of one version. What a GAP covers, an informer may have seen.
func (r *Recording) informed(readings []*Reading, counts *Counts) (found []string) {
	timelines := map[string]*timeline{}
	for _, reading := range readings {
		timelines[reading.Source.Name] = &timeline{
			gaps: reading.Gaps, versions: map[string]*Entry{}, gone: map[string]*Entry{},
		}
	}
	r.fill(timelines)
	for _, told := range r.Told {
		line := timelines[told.Resource]
		if line == nil {
			found = append(found, "the log has no source "+told.Resource)
			continue
		}
		switch told.What {
		case "resync":
			counts.Resyncs++
		case "store":
			counts.Snapshots++
			if objection := line.store(&told, counts); objection != "" {
				found = append(found, objection)
			}
		default:
			counts.Informed++
			if objection := r.event(line, &told, counts); objection != "" {
				found = append(found, objection)
			}
		}
	}
	return found
}

func (r *Recording) fill(timelines map[string]*timeline) {
	names := map[int64]string{}
	for _, source := range r.Sources {
		names[source.ID] = source.Name
	}
	to := map[string]int64{}
	for i := range r.Entries {
		entry := &r.Entries[i]
		line := timelines[names[r.Owners[i]]]
		if entry.Gap != nil {
			to[names[r.Owners[i]]] = number(entry.Gap.To)
			continue
		}
		one := step{entry.revision(), entry.Namespace + "/" + entry.Name, entry.revision()}
		if entry.Namespace == "" {
			one.key = entry.Name
		}
		if entry.Evidence == "inferred" {
			one.revision = to[names[r.Owners[i]]]
		}
		if entry.Type == "DELETED" {
			one.version = 0
			line.gone[entry.UID] = entry
		} else {
			line.versions[entry.version()] = entry
		}
		line.steps = append(line.steps, one)
	}
	for _, line := range timelines {
		slices.SortStableFunc(line.steps, func(a, b step) int { return int(a.revision - b.revision) })
	}
}

func (r *Recording) event(line *timeline, told *Told, counts *Counts) string {
	name := fmt.Sprintf("%s of %s %s at %s", told.What, told.Resource, told.Key, told.Version)
	entry := line.versions[told.UID+"@"+told.Version]
	if told.What == "delete" {
		entry = line.gone[told.UID]
		if entry != nil && (told.Final || entry.Evidence == "inferred") {
			return ""
		}
	}
	if entry == nil {
		if line.covered(number(told.Version)) || told.Final {
			counts.Excused++
			return ""
		}
		return "the log has no " + name
	}
	if entry.ResourceVersion != told.Version {
		return fmt.Sprintf("%s is at %s in the log", name, entry.ResourceVersion)
	}
	if key := r.key(entry); r.value(key, entry.Object) != r.value(key, told.Object) {
		return fmt.Sprintf("%s has another object at seq %d", name, entry.Seq)
	}
	return ""
}

func (l *timeline) covered(revision int64) bool {
	return l.between(revision, revision)
}

// between says that a GAP covers some version of a range.
func (l *timeline) between(low, high int64) bool {
	return slices.ContainsFunc(l.gaps, func(gap Stretch) bool { return high > gap.From && low <= gap.To })
}

// store finds a version at which the log has this state.
func (l *timeline) store(told *Told, counts *Counts) string {
	low, high := int64(0), number(told.Last)
	want := map[string]int64{}
	for key, version := range told.Versions {
		want[key] = number(version)
		low = max(low, want[key])
	}
	state := map[string]int64{}
	next := 0
	apply := func(upto int64) {
		for ; next < len(l.steps) && l.steps[next].revision <= upto; next++ {
			if one := l.steps[next]; one.version == 0 {
				delete(state, one.key)
			} else {
				state[one.key] = one.version
			}
		}
	}
	apply(low)
	at := low
	for {
		if maps.Equal(state, want) {
			return ""
		}
		if next == len(l.steps) || l.steps[next].revision > high {
			break
		}
		at = l.steps[next].revision
		apply(at)
	}
	if l.between(low, high) {
		counts.Excused++
		return ""
	}
	return fmt.Sprintf("a store of %s between %d and %d, %v, is no state of the log, which ends with %v", told.Resource, low, high, want, state)
}
