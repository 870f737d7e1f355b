// A proxy between an API server and etcd that loses watch events on request.
//
// It forwards every gRPC call as bytes, both ways, and reads nothing but the responses of Watch. An event that somebody asked it
// to drop is taken out of its response; a response without events that is left over is not sent. That is what a loss between
// etcd and an API server looks like: the next event, or the next answer to a request for progress, moves the watch cache past it.
//
//	etcd-proxy -listen 127.0.0.1:PORT -etcd 127.0.0.1:PORT -control 127.0.0.1:PORT
//
// -control serves HTTP:
//
//	POST   /drop     {"key": "/registry/configmaps/default/x", "type": "create|update|delete", "count": 1} arms a drop
//	DELETE /drop     disarms all
//	GET    /drop     what is armed, and of each how many are left
//	GET    /dropped  what was dropped, in order: [{"key", "type", "createRevision", "modRevision"}]
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"net"
	"net/http"
	"sync"
	"time"

	"go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// watchMethod is the one method whose responses are read.
const watchMethod = "/etcdserverpb.Watch/Watch"

func main() {
	listen := flag.String("listen", "", "address that the API server takes for etcd's")
	etcd := flag.String("etcd", "", "address of etcd")
	control := flag.String("control", "", "address of the HTTP endpoint that drops are armed at")
	flag.Parse()
	if err := run(*listen, *etcd, *control); err != nil {
		log.Fatal(err)
	}
}

func run(listen, etcd, control string) error {
	upstream, err := dial(etcd)
	if err != nil {
		return fmt.Errorf("etcd at %s: %w", etcd, err)
	}
	front, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	endpoint, err := net.Listen("tcp", control)
	if err != nil {
		return err
	}
	losses := &losses{}
	ended := make(chan error, 2)
	go func() { ended <- http.Serve(endpoint, losses.handler()) }()
	go func() { ended <- serve(upstream, losses).Serve(front) }()
	return <-ended
}

func dial(etcd string) (*grpc.ClientConn, error) {
	// An etcd that was killed is there again within a second, and the API server does not wait longer for the proxy than for etcd.
	patience := backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.5, MaxDelay: 500 * time.Millisecond}
	return grpc.NewClient("passthrough:///"+etcd,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithNoProxy(),
		grpc.WithDisableRetry(),
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: patience, MinConnectTimeout: time.Second}),
		grpc.WithDefaultCallOptions(
			grpc.ForceCodecV2(rawCodec{}),
			grpc.MaxCallRecvMsgSize(math.MaxInt32),
			grpc.MaxCallSendMsgSize(math.MaxInt32),
		),
	)
}

func serve(upstream *grpc.ClientConn, losses *losses) *grpc.Server {
	return grpc.NewServer(
		grpc.ForceServerCodecV2(rawCodec{}),
		grpc.UnknownServiceHandler(func(_ any, downstream grpc.ServerStream) error {
			return forward(upstream, downstream, losses)
		}),
		grpc.MaxRecvMsgSize(math.MaxInt32),
		grpc.MaxSendMsgSize(math.MaxInt32),
		grpc.MaxConcurrentStreams(math.MaxUint32),
		// As etcd: its clients send pings, also where they have no stream.
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 5 * time.Second, PermitWithoutStream: true}),
	)
}

// forward carries one call: requests up, headers, responses and trailers down, and the status that etcd ends it with.
func forward(upstream *grpc.ClientConn, downstream grpc.ServerStream, losses *losses) error {
	method, ok := grpc.MethodFromServerStream(downstream)
	if !ok {
		return status.Error(codes.Internal, "a call without a method")
	}
	// Deadlines and cancellations of the caller are those of the context; its metadata is not passed on by itself.
	ctx, cancel := context.WithCancel(downstream.Context())
	defer cancel()
	if header, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, header.Copy())
	}
	both := &grpc.StreamDesc{ServerStreams: true, ClientStreams: true}
	up, err := upstream.NewStream(ctx, both, method)
	if err != nil {
		return err
	}
	go func() {
		if requests(downstream, up) != nil {
			cancel()
		}
	}()
	return responses(up, downstream, method, losses)
}

// requests carries what the caller sends, to the end of it.
func requests(downstream grpc.ServerStream, up grpc.ClientStream) error {
	for {
		var message raw
		if err := downstream.RecvMsg(&message); errors.Is(err, io.EOF) {
			return up.CloseSend()
		} else if err != nil {
			return err
		}
		if err := up.SendMsg(&message); errors.Is(err, io.EOF) {
			// The call has ended; its status is the responses' to read.
			return nil
		} else if err != nil {
			return err
		}
	}
}

// responses carries what etcd sends, but for the events that are dropped.
func responses(up grpc.ClientStream, downstream grpc.ServerStream, method string, losses *losses) error {
	begun := false
	for {
		var message raw
		err := up.RecvMsg(&message)
		if !begun {
			begun = true
			if header, failed := up.Header(); failed == nil {
				if failed := downstream.SetHeader(header); failed != nil {
					return failed
				}
			}
		}
		if err != nil {
			downstream.SetTrailer(up.Trailer())
			if errors.Is(err, io.EOF) {
				return nil
			}
			return err
		}
		if method == watchMethod {
			kept, whole, err := losses.filter(message.bytes)
			if err != nil {
				return status.Errorf(codes.Internal, "a response of Watch cannot be read: %v", err)
			}
			if whole {
				continue
			}
			message.bytes = kept
		}
		if err := downstream.SendMsg(&message); err != nil {
			return err
		}
	}
}

// raw is a message that nobody reads.
type raw struct{ bytes []byte }

// rawCodec takes messages as the bytes that they are.
type rawCodec struct{}

func (rawCodec) Name() string { return "proto" }

func (rawCodec) Marshal(message any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(message.(*raw).bytes)}, nil
}

func (rawCodec) Unmarshal(data mem.BufferSlice, message any) error {
	message.(*raw).bytes = data.Materialize()
	return nil
}

// drop is an order: so many events of this type of this key are dropped.
type drop struct {
	Key   string `json:"key"`
	Type  string `json:"type"`
	Count int    `json:"count"`
}

// loss is an event that was dropped.
type loss struct {
	Key            string `json:"key"`
	Type           string `json:"type"`
	CreateRevision int64  `json:"createRevision"`
	ModRevision    int64  `json:"modRevision"`
}

// losses are the orders and what they led to.
type losses struct {
	mutex   sync.Mutex
	armed   []drop
	dropped []loss
}

// filter returns the response without what is to be dropped, and the very bytes where nothing was dropped. Nothing is sent where
// the loss is whole: all events of the response are dropped.
func (l *losses) filter(message []byte) (kept []byte, whole bool, err error) {
	l.mutex.Lock()
	defer l.mutex.Unlock()
	if len(l.armed) == 0 {
		return message, false, nil
	}
	var response etcdserverpb.WatchResponse
	if err := response.Unmarshal(message); err != nil {
		return nil, false, err
	}
	var events []*mvccpb.Event
	for _, event := range response.Events {
		if !l.takes(event) {
			events = append(events, event)
		}
	}
	switch {
	case len(events) == len(response.Events):
		return message, false, nil
	case len(events) == 0:
		return nil, true, nil
	}
	response.Events = events
	kept, err = response.Marshal()
	return kept, false, err
}

// takes says whether an event is dropped, and writes it down. The lock is held.
func (l *losses) takes(event *mvccpb.Event) bool {
	is := typeOf(event)
	for at := range l.armed {
		order := &l.armed[at]
		if order.Key != string(event.Kv.Key) || order.Type != is {
			continue
		}
		l.dropped = append(l.dropped, loss{order.Key, is, event.Kv.CreateRevision, event.Kv.ModRevision})
		log.Printf("dropped the %s of %s at revision %d", is, order.Key, event.Kv.ModRevision)
		if order.Count--; order.Count == 0 {
			l.armed = append(l.armed[:at], l.armed[at+1:]...)
		}
		return true
	}
	return false
}

func typeOf(event *mvccpb.Event) string {
	switch {
	case event.Type == mvccpb.DELETE:
		return "delete"
	case event.Kv.CreateRevision == event.Kv.ModRevision:
		return "create"
	default:
		return "update"
	}
}

func (l *losses) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("POST /drop", func(answer http.ResponseWriter, request *http.Request) {
		order := drop{Count: 1}
		decoder := json.NewDecoder(request.Body)
		decoder.DisallowUnknownFields()
		if err := decoder.Decode(&order); err != nil {
			http.Error(answer, err.Error(), http.StatusBadRequest)
			return
		}
		known := order.Type == "create" || order.Type == "update" || order.Type == "delete"
		if order.Key == "" || !known || order.Count < 1 {
			http.Error(answer, "a drop has a key, a type (create, update or delete) and a count from 1", http.StatusBadRequest)
			return
		}
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.armed = append(l.armed, order)
		answer.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("DELETE /drop", func(answer http.ResponseWriter, _ *http.Request) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		l.armed = nil
		answer.WriteHeader(http.StatusNoContent)
	})
	mux.HandleFunc("GET /drop", func(answer http.ResponseWriter, _ *http.Request) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		write(answer, append([]drop{}, l.armed...))
	})
	mux.HandleFunc("GET /dropped", func(answer http.ResponseWriter, _ *http.Request) {
		l.mutex.Lock()
		defer l.mutex.Unlock()
		write(answer, append([]loss{}, l.dropped...))
	})
	return mux
}

func write(answer http.ResponseWriter, value any) {
	answer.Header().Set("Content-Type", "application/json")
	if err := json.NewEncoder(answer).Encode(value); err != nil {
		log.Print(err)
	}
}
