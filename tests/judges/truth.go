package main

import (
	"fmt"
	"strings"

	"go.uber.org/zap"
	"google.golang.org/protobuf/proto"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/tests/v3/robustness/model"
	"go.etcd.io/etcd/tests/v3/robustness/report"
	"go.etcd.io/raft/v3/raftpb"
)

// Truth is what etcd has persisted: the requests in its write-ahead log, and what follows from them.
type Truth struct {
	Requests    []model.EtcdRequest
	Replay      *model.EtcdReplay
	Compactions int
}

// readTruth reads the write-ahead log by etcd's own reader. Two things are completed. The reader leaves out the lease of a put in
// a transaction, which is how the API server writes Events. And values are compared as documents, because the API server
// adds the version to what it serves.
func readTruth(lg *zap.Logger, recording *Recording) (*Truth, error) {
	requests, err := report.PersistedRequests(lg, []string{recording.Etcd})
	if err != nil {
		return nil, err
	}
	_, entries, err := report.ReadWAL(lg, recording.Etcd)
	if err != nil {
		return nil, err
	}
	truth := &Truth{Requests: requests}
	next := 0
	for _, entry := range entries {
		var raft pb.InternalRaftRequest
		if entry.GetType() != raftpb.EntryNormal || len(entry.Data) == 0 {
			continue
		}
		if err := proto.Unmarshal(entry.Data, &raft); err != nil {
			return nil, err
		}
		if raft.ClusterMemberAttrSet != nil || raft.ClusterVersionSet != nil || raft.DowngradeInfoSet != nil {
			continue
		}
		if next == len(requests) {
			return nil, fmt.Errorf("the write-ahead log has more requests than the %d that its reader found", next)
		}
		request := &requests[next]
		next++
		switch {
		case raft.Txn != nil:
			recording.complete(raft.Txn.Success, request.Txn.OperationsOnSuccess)
			recording.complete(raft.Txn.Failure, request.Txn.OperationsOnFailure)
		case raft.Put != nil:
			put := &request.Txn.OperationsOnSuccess[0].Put
			put.Value = recording.value(put.Key, raft.Put.Value)
		case raft.Compaction != nil:
			truth.Compactions++
		}
	}
	if next != len(requests) {
		return nil, fmt.Errorf("%d requests of %d were found in the write-ahead log", next, len(requests))
	}
	truth.Replay = model.NewReplay(requests)
	return truth, nil
}

func (r *Recording) complete(stored []*pb.RequestOp, operations []model.EtcdOperation) {
	for i, op := range stored {
		if put := op.GetRequestPut(); put != nil {
			operations[i].Put.LeaseID = put.Lease
			operations[i].Put.Value = r.value(string(put.Key), put.Value)
		}
	}
}

// events are the changes of a place above one revision and up to another.
func (t *Truth) events(prefix string, above, upto int64) (events []model.PersistedEvent) {
	for _, event := range t.Replay.Events {
		if event.Revision > above && event.Revision <= upto && strings.HasPrefix(event.Key, prefix) {
			events = append(events, event)
		}
	}
	return events
}

// state is what a place holds at a revision.
func (t *Truth) state(prefix string, revision int64) (map[string]model.ValueRevision, error) {
	state, err := t.Replay.StateForRevision(revision)
	if err != nil {
		return nil, err
	}
	found := map[string]model.ValueRevision{}
	for i, key := range state.Keys {
		if state.KeyValues[i] != nil && strings.HasPrefix(key, prefix) {
			found[key] = *state.KeyValues[i]
		}
	}
	return found, nil
}
