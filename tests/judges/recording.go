package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// Entry is one line of decklog's log, as far as the judges need it.
type Entry struct {
	Seq             int64
	Time            time.Time
	Type            string
	Evidence        string
	APIVersion      string
	Resource        string
	Namespace       string
	Name            string
	UID             string
	ResourceVersion string
	Change          *struct{ Patch []Operation }
	Object          json.RawMessage
	Gap             *Gap
}

// Gap is the gap of a GAP entry.
type Gap struct {
	Why  string
	From string
	To   string
}

// Operation is one step of a patch, with the value that was there before.
type Operation struct {
	Op    string
	From  string
	Path  string
	Value any
	Was   any
}

// Source is one watched resource, with the place of its objects in etcd.
type Source struct {
	ID     int64
	Name   string
	Prefix string
}

// Look is what one read transaction saw of the journal: its newest seq, and the durable position of each source.
type Look struct {
	Head      int64
	End       bool // the daemon has just ended, and the next look is of its next life
	Positions map[string]int64
}

// Compaction makes etcd forget what was before a revision.
type Compaction struct {
	Revision int64
	Asked    time.Time
}

// Recording is a log with all that is needed to judge it.
type Recording struct {
	Etcd    string   // the data directory of an etcd that has ended
	First   int64    // the revision at which etcd was read before anybody wrote
	Blank   []string // places in etcd whose values are not compared
	Sources []Source
	Owners  []int64 // the source of each entry, by seq
	Looks   []Look
	// What etcd was made to forget, and when that was asked for.
	Compactions []Compaction

	Entries []Entry `json:"-"`
	Told    []Told  `json:"-"` // what the informers have told
}

func readRecording(dir string) (*Recording, error) {
	text, err := os.ReadFile(filepath.Join(dir, "recording.json"))
	if err != nil {
		return nil, err
	}
	recording := &Recording{}
	if err := json.Unmarshal(text, recording); err != nil {
		return nil, err
	}
	if recording.Entries, err = readLines[Entry](filepath.Join(dir, "log.jsonl")); err != nil {
		return nil, err
	}
	if recording.Told, err = readLines[Told](filepath.Join(dir, "informers.jsonl")); err != nil {
		return nil, err
	}
	if len(recording.Owners) != len(recording.Entries) {
		return nil, fmt.Errorf("%d entries, and %d sources of entries", len(recording.Entries), len(recording.Owners))
	}
	return recording, nil
}

// readLines reads whole lines, because the last line of a process that ended may be a half.
func readLines[T any](path string) ([]T, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var found []T
	lines := bufio.NewReader(bytes.NewReader(text))
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return found, nil
		}
		var one T
		decoder := json.NewDecoder(bytes.NewReader(line))
		decoder.UseNumber()
		if err := decoder.Decode(&one); err != nil {
			return nil, fmt.Errorf("%s: %w in %.200s", path, err, line)
		}
		found = append(found, one)
	}
}

// clone copies what a mutation changes.
func (r *Recording) clone() *Recording {
	other := *r
	other.Owners = slices.Clone(r.Owners)
	other.Entries = slices.Clone(r.Entries)
	other.Looks = slices.Clone(r.Looks)
	return &other
}

// remove takes one entry out of the log.
func (r *Recording) remove(at int) {
	r.Entries = slices.Delete(r.Entries, at, at+1)
	r.Owners = slices.Delete(r.Owners, at, at+1)
	r.renumber(at, -1)
}

// insert puts one entry into the log.
func (r *Recording) insert(at int, entry Entry, owner int64) {
	r.Entries = slices.Insert(r.Entries, at, entry)
	r.Owners = slices.Insert(r.Owners, at, owner)
	r.renumber(at, 1)
}

func (r *Recording) renumber(at int, by int64) {
	for i := range r.Entries {
		r.Entries[i].Seq = int64(i + 1)
	}
	for i := range r.Looks {
		if r.Looks[i].Head > int64(at) {
			r.Looks[i].Head += by
		}
	}
}

// seen says that an entry is recorded as the API server brought it, on a watch or in its history.
func (e *Entry) seen() bool { return e.Evidence == "watched" || e.Evidence == "recovered" }

func (e *Entry) revision() int64 { return number(e.ResourceVersion) }

// uid and version name one version of an object.
func (e *Entry) version() string { return e.UID + "@" + e.ResourceVersion }

// key is the place of an entry's object in etcd. It follows from the entry alone, so that the judge sees an entry of another source.
func (r *Recording) key(entry *Entry) string {
	group, _, named := strings.Cut(entry.APIVersion, "/")
	name := entry.Resource
	if named && group != "events.k8s.io" {
		name += "." + group
	}
	prefix := "/registry/unknown/" + name + "/"
	for _, source := range r.Sources {
		if source.Name == name {
			prefix = source.Prefix
			break
		}
	}
	if entry.Namespace != "" {
		prefix += entry.Namespace + "/"
	}
	return prefix + entry.Name
}

// blank says that the values of a place are not compared.
func (r *Recording) blank(key string) bool {
	return slices.ContainsFunc(r.Blank, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
}

// value is an object as it is compared: without its version, which etcd does not store, and with its keys in order.
func (r *Recording) value(key string, object []byte) model.ValueOrHash {
	if r.blank(key) {
		return model.ValueOrHash{}
	}
	document, err := decode(object)
	if err != nil {
		return model.ToValueOrHash(string(object))
	}
	return canonical(document)
}

func decode(object []byte) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(object))
	decoder.UseNumber()
	var document map[string]any
	err := decoder.Decode(&document)
	return document, err
}

func canonical(document map[string]any) model.ValueOrHash {
	if metadata, ok := document["metadata"].(map[string]any); ok {
		delete(metadata, "resourceVersion")
	}
	text, err := json.Marshal(document)
	if err != nil {
		panic(err)
	}
	return model.ToValueOrHash(string(text))
}

func number(text string) int64 {
	value, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return 0
	}
	return value
}
