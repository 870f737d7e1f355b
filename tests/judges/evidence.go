package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/transparency-dev/formats/log"
	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/proof"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
	"golang.org/x/mod/sumdb/note"
)

// state is a tree at one checkpoint, and where its tiles are.
type state struct {
	dir        string
	tiles      *client.FileFetcher
	checkpoint *log.Checkpoint
}

// checkEvidence lets the checker of Tessera read every tree in a directory of evidence, and its client prove that of two checkpoints of one
// origin the smaller is the beginning of the larger. It prints the size of each, and reports all that do not hold.
func checkEvidence(dir, key string) error {
	verifier, err := fnote.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return err
	}
	checkpoints, err := filepath.Glob(filepath.Join(dir, "*", "checkpoint"))
	if err != nil || len(checkpoints) == 0 {
		return fmt.Errorf("%s has no trees: %v", dir, err)
	}
	var wrong []error
	origins := map[string][]state{}
	for _, path := range checkpoints {
		state, err := checkTree(path, verifier)
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%s: %w", path, err))
			continue
		}
		origins[state.checkpoint.Origin] = append(origins[state.checkpoint.Origin], *state)
		fmt.Println(state.checkpoint.Origin, state.checkpoint.Size)
	}
	for _, states := range origins {
		sort.SliceStable(states, func(one, other int) bool { return states[one].checkpoint.Size < states[other].checkpoint.Size })
		for at := 1; at < len(states); at++ {
			if err := isBeginning(states[at-1], states[at]); err != nil {
				wrong = append(wrong, err)
			}
		}
	}
	return errors.Join(wrong...)
}

func checkTree(path string, verifier note.Verifier) (found *state, err error) {
	// The checker does not expect an empty bundle.
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("the checker does not go on: %v", panicked)
		}
	}()
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	origin, _, _ := strings.Cut(string(text), "\n")
	tiles := &client.FileFetcher{Root: filepath.Dir(path)}
	if err := fsck.New(origin, verifier, tiles, hashLeaves, fsck.Opts{N: 1}).Check(context.Background()); err != nil {
		return nil, err
	}
	checkpoint, _, _, err := log.ParseCheckpoint(text, origin, verifier)
	if err != nil {
		return nil, err
	}
	return &state{filepath.Dir(path), tiles, checkpoint}, nil
}

// isBeginning proves consistency (RFC 6962) out of the tiles of the larger tree.
func isBeginning(old, new state) error {
	ctx := context.Background()
	if old.checkpoint.Size == 0 {
		return nil
	}
	builder, err := client.NewProofBuilder(ctx, new.checkpoint.Size, new.tiles.ReadTile)
	if err != nil {
		return fmt.Errorf("%s: %w", new.dir, err)
	}
	hashes, err := builder.ConsistencyProof(ctx, old.checkpoint.Size, new.checkpoint.Size)
	if err != nil {
		return fmt.Errorf("%s: %w", new.dir, err)
	}
	err = proof.VerifyConsistency(rfc6962.DefaultHasher, old.checkpoint.Size, new.checkpoint.Size, hashes, old.checkpoint.Hash, new.checkpoint.Hash)
	if err != nil {
		return fmt.Errorf("%s is not the beginning of %s: %w", old.dir, new.dir, err)
	}
	return nil
}

func hashLeaves(bundle []byte) ([][]byte, error) {
	entries := &api.EntryBundle{}
	if err := entries.UnmarshalText(bundle); err != nil {
		return nil, err
	}
	hashes := make([][]byte, 0, len(entries.Entries))
	for _, entry := range entries.Entries {
		hashes = append(hashes, rfc6962.DefaultHasher.HashLeaf(entry))
	}
	return hashes, nil
}
