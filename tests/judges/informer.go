package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// Told is one line of what informers tell: an event, or the whole store of one.
type Told struct {
	Resource string          // as decklog names it: deployments.apps
	What     string          // add, update, delete, resync, store
	Key      string          `json:",omitempty"` // namespace/name, or the name alone
	UID      string          `json:",omitempty"`
	Version  string          `json:",omitempty"`
	Final    bool            `json:",omitempty"` // a deletion whose last state the informer has missed
	Object   json.RawMessage `json:",omitempty"`
	// Of a store: the version of each object, and that up to which the informer has seen everything.
	Versions map[string]string `json:",omitempty"`
	Last     string            `json:",omitempty"`
}

// out is the file of lines, which many goroutines write.
type out struct {
	sync.Mutex
	encoder *json.Encoder
}

func (o *out) write(told Told) {
	o.Lock()
	defer o.Unlock()
	if err := o.encoder.Encode(told); err != nil {
		panic(err)
	}
}

// inform runs an informer of each resource until it is asked to end. Each resync of an informer is followed by a copy of its store,
// and the end by another one.
func inform(arguments []string) error {
	flags := flag.NewFlagSet("inform", flag.ContinueOnError)
	kubeconfig := flags.String("kubeconfig", "", "how to reach the API server")
	path := flags.String("out", "", "the file to write")
	resync := flags.Duration("resync", 5*time.Second, "how often an informer tells everything again")
	if err := flags.Parse(arguments); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		return err
	}
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	file, err := os.Create(*path)
	if err != nil {
		return err
	}
	defer file.Close()
	lines := &out{encoder: json.NewEncoder(file)}
	stop := make(chan struct{})
	factory := dynamicinformer.NewDynamicSharedInformerFactory(client, *resync)
	var stores []func()
	for _, argument := range flags.Args() {
		// VERSION/RESOURCE, such as v1/deployments.apps
		version, name, ok := strings.Cut(argument, "/")
		if !ok {
			return fmt.Errorf("%q is no VERSION/RESOURCE", argument)
		}
		plural, group, _ := strings.Cut(name, ".")
		informer := factory.ForResource(schema.GroupVersionResource{Group: group, Version: version, Resource: plural}).Informer()
		store := func() { lines.write(snapshot(name, informer)) }
		stores = append(stores, store)
		if err := follow(lines, name, informer, store); err != nil {
			return err
		}
	}
	factory.Start(stop)
	for resource, synced := range factory.WaitForCacheSync(stop) {
		if !synced {
			return fmt.Errorf("no list of %s", resource)
		}
	}
	fmt.Fprintln(os.Stderr, "informers are synced")
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM)
	<-ended
	close(stop)
	factory.Shutdown()
	for _, store := range stores {
		store()
	}
	return nil
}

// follow writes what an informer tells. The first object that comes again unchanged begins a resync; those that follow at once
// belong to the same.
func follow(lines *out, name string, informer cache.SharedIndexInformer, store func()) error {
	var resynced time.Time
	line := func(what string, object any) {
		final := false
		if gone, ok := object.(cache.DeletedFinalStateUnknown); ok {
			object, final = gone.Obj, true
		}
		it := object.(*unstructured.Unstructured)
		key, _ := cache.MetaNamespaceKeyFunc(it)
		told := Told{Resource: name, What: what, Key: key, UID: string(it.GetUID()), Version: it.GetResourceVersion(), Final: final}
		if what != "resync" {
			text, err := it.MarshalJSON()
			if err != nil {
				panic(err)
			}
			told.Object = text
		}
		lines.write(told)
	}
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { line("add", object) },
		DeleteFunc: func(object any) { line("delete", object) },
		UpdateFunc: func(before, object any) {
			if before.(*unstructured.Unstructured).GetResourceVersion() != object.(*unstructured.Unstructured).GetResourceVersion() {
				line("update", object)
				return
			}
			line("resync", object)
			if time.Since(resynced) > time.Second {
				resynced = time.Now()
				store()
			}
		},
	})
	return err
}

// snapshot copies a store. It is that of one version, which is between that of its newest object and the version that the informer
// names afterwards.
func snapshot(name string, informer cache.SharedIndexInformer) Told {
	versions := map[string]string{}
	for _, object := range informer.GetStore().List() {
		it := object.(*unstructured.Unstructured)
		key, _ := cache.MetaNamespaceKeyFunc(it)
		versions[key] = it.GetResourceVersion()
	}
	return Told{Resource: name, What: "store", Versions: versions, Last: informer.LastSyncResourceVersion()}
}
