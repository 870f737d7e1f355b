package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Control is a lie put into a true log, and what the judge said of it.
type Control struct {
	Name, Expected, Found string
	Caught                bool
}

// mutation makes one lie. It answers false where the log has no place for it.
type mutation struct {
	name, expected string
	lie            func(*Recording, []*Reading) bool
}

// The first nine are the guarantees of etcd's suite, in its order; the others hold the judges of this program.
var mutations = []mutation{
	{"a foreign key", "event not matching watch filter", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			r.Entries[at[i]].Resource, r.Entries[at[i]].APIVersion = "strangers", "v1"
			return true
		})
	}},
	{"two changes in the wrong order", "broke Ordered", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			one, other := &r.Entries[at[i]], &r.Entries[at[i+1]]
			if one.revision() == other.revision() {
				return false
			}
			*one, *other = *other, *one
			one.Seq, other.Seq = other.Seq, one.Seq
			return true
		})
	}},
	{"a change twice", "broke Unique", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			r.insert(at[i]+1, r.Entries[at[i]], r.Owners[at[i]])
			return true
		})
	}},
	{"a revision in two parts", "broke Atomic", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			one, other := r.Entries[at[i]], r.Entries[at[i+1]]
			if one.revision() != other.revision() {
				return false
			}
			r.bookmark(one.Seq, r.Owners[at[i]], one.revision())
			return true
		})
	}},
	{"a bookmark ahead of its changes", "broke Bookmarkable", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			one, other := r.Entries[at[i]], r.Entries[at[i+1]]
			if one.revision() == other.revision() {
				return false
			}
			r.bookmark(one.Seq, r.Owners[at[i]], other.revision())
			return true
		})
	}},
	{"a life that begins too late", "broke Resumable", func(r *Recording, of []*Reading) bool {
		for n := 1; n < len(r.Looks)-1; n++ {
			if r.Looks[n].End {
				for at := int(r.Looks[n].Head); at < len(r.Entries); at++ {
					entry := &r.Entries[at]
					position := r.Looks[n].Positions[fmt.Sprint(r.Owners[at])]
					if entry.Gap != nil || !entry.seen() || entry.revision() <= position {
						continue
					}
					if first(r, at, position) {
						r.remove(at)
						return true
					}
				}
			}
		}
		return false
	}},
	{"a change that is called a creation", "incorrect event IsCreate", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			if r.Entries[at[i]].Type != "MODIFIED" {
				return false
			}
			r.Entries[at[i]].Type = "ADDED"
			return true
		})
	}},
	{"a change left out", "broke Reliable", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			r.remove(at[i])
			return true
		})
	}},
	{"another version before", "incorrect event prevValue", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			entry := &r.Entries[at[i]]
			if entry.Change == nil || !r.created(at[i]) || r.blank(r.key(entry)) {
				return false
			}
			patch := slices.Clone(entry.Change.Patch)
			for n := range patch {
				if patch[n].Op == "replace" && patch[n].Path != "/metadata/resourceVersion" {
					patch[n].Was = "another"
					entry.Change = &struct{ Patch []Operation }{patch}
					return true
				}
			}
			return false
		})
	}},
	{"another object", "broke Reliable", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			entry := &r.Entries[at[i]]
			if entry.Type == "DELETED" || r.blank(r.key(entry)) {
				return false
			}
			entry.Object = json.RawMessage(strings.Replace(string(entry.Object), `"name":"`, `"name":"un`, 1))
			return true
		})
	}},
	{"an object that no list had", "is gone at", func(r *Recording, of []*Reading) bool {
		for i, entry := range r.Entries {
			if entry.Evidence == "listed" {
				entry.Name += "-more"
				r.insert(i, entry, r.Owners[i])
				return true
			}
		}
		return false
	}},
	{"a GAP without a reason", "is not real", func(r *Recording, of []*Reading) bool {
		return r.inside(of, func(at []int, i int) bool {
			one := r.Entries[at[i]]
			if one.revision() == r.Entries[at[i+1]].revision() {
				return false
			}
			gap := Entry{Type: "GAP", Time: one.Time, Gap: &Gap{"expired", one.ResourceVersion, one.ResourceVersion}}
			r.insert(at[i]+1, gap, r.Owners[at[i]])
			return true
		})
	}},
	{"a GAP that begins too early", "is too wide", func(r *Recording, of []*Reading) bool {
		return r.gapped(of, func(reading *Reading, gap *Gap) { gap.From = "1" })
	}},
	{"a GAP that ends too late", "is too wide", func(r *Recording, of []*Reading) bool {
		return r.gapped(of, func(reading *Reading, gap *Gap) {
			gap.To = fmt.Sprint(r.forgotten(reading.Gaps[0].At) + 1)
		})
	}},
	{"a change that an informer saw left out", "informers", func(r *Recording, of []*Reading) bool {
		told := map[string]bool{}
		for _, one := range r.Told {
			if one.What == "update" {
				told[one.UID+"@"+one.Version] = true
			}
		}
		return r.inside(of, func(at []int, i int) bool {
			if !told[r.Entries[at[i]].version()] {
				return false
			}
			r.remove(at[i])
			return true
		})
	}},
}

// inside tries each change that stands within an operation: not its first, nor its last two. `at` has the places of the source's
// changes between two breaks.
func (r *Recording) inside(of []*Reading, try func(at []int, i int) bool) bool {
	ends := map[int64]bool{}
	for _, look := range r.Looks {
		ends[look.Head] = ends[look.Head] || look.End
	}
	runs := map[int64][]int{}
	for i := range r.Entries {
		owner := r.Owners[i]
		if r.Entries[i].seen() && r.Entries[i].Gap == nil && r.Entries[i].Seq > r.Looks[0].Head {
			runs[owner] = append(runs[owner], i)
		} else {
			delete(runs, owner)
		}
		if run := runs[owner]; len(run) >= 4 {
			if try(run[len(run)-4:], 1) {
				return true
			}
		}
		if ends[r.Entries[i].Seq] {
			clear(runs)
		}
	}
	return false
}

// bookmark adds a look behind an entry that has another position of one source.
func (r *Recording) bookmark(seq, owner, position int64) {
	at := slices.IndexFunc(r.Looks, func(look Look) bool { return look.Head >= seq })
	positions := map[string]int64{fmt.Sprint(owner): position}
	r.Looks = slices.Insert(r.Looks, at, Look{Head: seq, Positions: positions})
}

// first says that no other change of the source is behind a position.
func first(r *Recording, at int, position int64) bool {
	for i := 0; i < at; i++ {
		if r.Owners[i] == r.Owners[at] && r.Entries[i].revision() > position {
			return false
		}
	}
	return true
}

// created says that the log has seen the object of an entry from its creation on.
func (r *Recording) created(at int) bool {
	for i := at - 1; i >= 0; i-- {
		if r.Entries[i].UID == r.Entries[at].UID && r.Entries[i].Type == "ADDED" {
			return r.Entries[i].seen() && r.Entries[i].Seq > r.Looks[0].Head
		}
	}
	return false
}

// gapped changes the first GAP that some change precedes.
func (r *Recording) gapped(of []*Reading, edit func(*Reading, *Gap)) bool {
	for _, reading := range of {
		if len(reading.Gaps) == 0 || len(reading.Seen) < 3 {
			continue
		}
		entry := &r.Entries[reading.Gaps[0].Seq-1]
		gap := *entry.Gap
		edit(reading, &gap)
		entry.Gap = &gap
		return true
	}
	return false
}

// controls puts each lie into the log, and has the same judges judge it.
func controls(lg *zap.Logger, truth *Truth, recording *Recording) (done []Control) {
	for _, mutation := range mutations {
		control := Control{Name: mutation.name, Expected: mutation.expected}
		readings, err := recording.read()
		if err != nil {
			panic(err)
		}
		lying := recording.clone()
		if mutation.lie(lying, readings) {
			found := judge(lg, truth, lying).Found
			control.Found = short(found)
			control.Caught = slices.ContainsFunc(found, func(one string) bool { return strings.Contains(one, mutation.expected) })
		} else {
			control.Found = "the log has no place for it"
		}
		done = append(done, control)
	}
	return done
}
