package main

import (
	"encoding/json"
	"testing"
)

// A patch is undone to the byte, with every operation that decklog writes; what it does not fit is refused.
func TestAPatchIsUndone(t *testing.T) {
	before := `{"a/b":[1,2,3],"gone":{"x":null},"metadata":{"resourceVersion":"7"},"same":[{"n":1},{"n":2}]}`
	after := `{"a/b":[3,1,9],"metadata":{"resourceVersion":"8"},"new":true,"same":[{"n":1},{"n":5}]}`
	patch := `[
		{"op":"move","from":"/a~1b/2","path":"/a~1b/0"},
		{"op":"remove","path":"/a~1b/2","was":2},
		{"op":"add","path":"/a~1b/-","value":9},
		{"op":"remove","path":"/gone","was":{"x":null}},
		{"op":"add","path":"/new","value":true},
		{"op":"replace","path":"/same/1/n","value":5,"was":2},
		{"op":"replace","path":"/metadata/resourceVersion","value":"8","was":"7"}]`
	var steps []Operation
	if err := json.Unmarshal([]byte(patch), &steps); err != nil {
		t.Fatal(err)
	}
	value, revision, err := undo([]byte(after), steps)
	document, _ := decode([]byte(before))
	if err != nil || revision != 7 || value != canonical(document) {
		t.Fatalf("%v, revision %d, %v", value, revision, err)
	}
	for _, wrong := range []string{
		`[{"op":"add","path":"/nowhere","value":1}]`,
		`[{"op":"remove","path":"/new","was":1}]`,
		`[{"op":"replace","path":"/a~1b/7","value":1,"was":2}]`,
		`[{"op":"move","from":"/a~1b/0","path":"/a~1b/7"}]`,
	} {
		if err := json.Unmarshal([]byte(wrong), &steps); err != nil {
			t.Fatal(err)
		}
		if _, _, err := undo([]byte(after), steps); err == nil {
			t.Errorf("%s is undone", wrong)
		}
	}
}
