package main

import (
	"os"

	"go.etcd.io/etcd/etcdctl/v3/ctlv3"
)

// etcdctl runs etcd's own client with these arguments, and ends the program.
func etcdctl(arguments []string) error {
	os.Args = append([]string{"etcdctl"}, arguments...)
	return ctlv3.Start()
}
