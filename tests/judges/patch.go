package main

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// undo leads from an object back to the version before, by a JSON Patch that says what was there. It returns that version and its
// revision.
func undo(object []byte, patch []Operation) (model.ValueOrHash, int64, error) {
	document, err := decode(object)
	if err != nil {
		return model.ValueOrHash{}, 0, err
	}
	var root any = document
	for _, step := range slices.Backward(patch) {
		if step.Op == "move" {
			// An element of a list has changed its place.
			step.From, step.Path = step.Path, step.From
			if root, step.Was, err = take(root, tokens(step.From)); err == nil {
				step.Op = "remove"
			}
		}
		if err == nil {
			root, err = undone(root, tokens(step.Path), step)
		}
		if err != nil {
			return model.ValueOrHash{}, 0, fmt.Errorf("%s of %s: %w", step.Op, step.Path, err)
		}
	}
	before, ok := root.(map[string]any)
	if !ok {
		return model.ValueOrHash{}, 0, fmt.Errorf("the version before is no object")
	}
	metadata, _ := before["metadata"].(map[string]any)
	version, _ := metadata["resourceVersion"].(string)
	return canonical(before), number(version), nil
}

func tokens(path string) []string {
	tokens := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i := range tokens {
		tokens[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(tokens[i])
	}
	return tokens
}

// take takes an element out of a list.
func take(root any, path []string) (any, any, error) {
	node := root
	for _, token := range path[:len(path)-1] {
		switch parent := node.(type) {
		case map[string]any:
			node = parent[token]
		case []any:
			index, err := strconv.Atoi(token)
			if err != nil || index >= len(parent) {
				return nil, nil, fmt.Errorf("no element %s", token)
			}
			node = parent[index]
		}
	}
	list, ok := node.([]any)
	index, err := strconv.Atoi(path[len(path)-1])
	if !ok || err != nil || index >= len(list) {
		return nil, nil, fmt.Errorf("no list with an element %s", path[len(path)-1])
	}
	element := list[index]
	root, err = undone(root, path, Operation{Op: "add"})
	return root, element, err
}

// undone takes one step back.
func undone(node any, path []string, step Operation) (any, error) {
	switch node := node.(type) {
	case map[string]any:
		name := path[0]
		if len(path) > 1 {
			child, err := undone(node[name], path[1:], step)
			node[name] = child
			return node, err
		}
		if _, there := node[name]; there == (step.Op == "remove") {
			return nil, fmt.Errorf("%q is not as the patch left it", name)
		}
		if step.Op == "add" {
			delete(node, name)
		} else {
			node[name] = step.Was
		}
		return node, nil
	case []any:
		index, err := strconv.Atoi(path[0])
		if path[0] == "-" {
			index, err = len(node)-1, nil
		}
		if most := len(node); err != nil || index < 0 || index > most || index == most && (len(path) > 1 || step.Op != "remove") {
			return nil, fmt.Errorf("no element %s of %d", path[0], len(node))
		}
		switch {
		case len(path) > 1:
			node[index], err = undone(node[index], path[1:], step)
			return node, err
		case step.Op == "add":
			return slices.Delete(node, index, index+1), nil
		case step.Op == "remove":
			return slices.Insert(node, index, step.Was), nil
		}
		node[index] = step.Was
		return node, nil
	}
	return nil, fmt.Errorf("no object and no array at %q", path[0])
}
