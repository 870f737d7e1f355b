package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	fnote "github.com/transparency-dev/formats/note"
	"github.com/transparency-dev/merkle/rfc6962"
	"github.com/transparency-dev/tessera/api"
	"github.com/transparency-dev/tessera/client"
	"github.com/transparency-dev/tessera/fsck"
)

// checkEvidence lets the checker of Tessera read every tree in a directory of evidence, and prints the size of each.
func checkEvidence(dir, key string) error {
	verifier, err := fnote.NewVerifier(strings.TrimSpace(key))
	if err != nil {
		return err
	}
	checkpoints, err := filepath.Glob(filepath.Join(dir, "*", "checkpoint"))
	if err != nil || len(checkpoints) == 0 {
		return fmt.Errorf("%s has no trees: %v", dir, err)
	}
	for _, path := range checkpoints {
		checkpoint, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		lines := strings.SplitN(string(checkpoint), "\n", 3)
		tree := &client.FileFetcher{Root: filepath.Dir(path)}
		if err := fsck.New(lines[0], verifier, tree, hashLeaves, fsck.Opts{N: 1}).Check(context.Background()); err != nil {
			return fmt.Errorf("%s: %w", lines[0], err)
		}
		fmt.Println(lines[0], lines[1])
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
