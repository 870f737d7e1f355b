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
		path := strings.Split(strings.TrimPrefix(step.Path, "/"), "/")
		for i := range path {
			path[i] = strings.NewReplacer("~1", "/", "~0", "~").Replace(path[i])
		}
		if root, err = undone(root, path, step); err != nil {
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
