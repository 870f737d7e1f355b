// Judges of decklog's log that decklog's authors did not write: the validators of etcd's own robustness suite, over etcd's own
// write-ahead log, the informers of client-go, Tessera's checker of transparency logs, and the client of the Model Context Protocol's Go SDK.
// Beside them is etcdctl, with which an auditor asks etcd.
//
//	judges inform --kubeconfig FILE --out FILE VERSION/RESOURCE...   runs informers until SIGTERM
//	judges judge DIR                                                 judges the recording in DIR, and prints what it found as JSON
//	judges fsck DIR KEY                                              checks every tree of evidence in DIR
//	judges assist SCRIPT                                             calls the tools of a server of the Model Context Protocol
//	judges etcdctl ARGUMENT...                                       is etcdctl
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"go.uber.org/zap"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(arguments []string) error {
	switch {
	case len(arguments) > 1 && arguments[0] == "inform":
		return inform(arguments[1:])
	case len(arguments) == 2 && arguments[0] == "judge":
		return judged(arguments[1])
	case len(arguments) == 3 && arguments[0] == "fsck":
		return checkEvidence(arguments[1], arguments[2])
	case len(arguments) == 2 && arguments[0] == "assist":
		return assist(arguments[1])
	case len(arguments) > 1 && arguments[0] == "etcdctl":
		return etcdctl(arguments[1:])
	}
	return fmt.Errorf("usage: judges inform --kubeconfig FILE --out FILE VERSION/RESOURCE... | judges judge DIR | judges fsck DIR KEY | judges assist SCRIPT | judges etcdctl ARGUMENT...")
}

func judged(dir string) error {
	answer := json.NewEncoder(os.Stdout)
	// The suite prints differences there.
	os.Stdout = os.Stderr
	config := zap.NewDevelopmentConfig()
	config.Level = zap.NewAtomicLevelAt(zap.ErrorLevel)
	config.DisableStacktrace = true
	lg, err := config.Build()
	if err != nil {
		return err
	}
	recording, err := readRecording(dir)
	if err != nil {
		return err
	}
	truth, err := readTruth(lg, recording)
	if err != nil {
		return err
	}
	judgement := judge(lg, truth, recording)
	var tried []Control
	if len(judgement.Found) == 0 {
		silent, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		os.Stdout = silent
		tried = controls(zap.NewNop(), truth, recording)
	}
	return answer.Encode(struct {
		Judgement
		Controls []Control
	}{judgement, tried})
}
