//go:build tools

// Package tools keeps etcd's programs among the module's requirements. Nothing is built from this file.
package tools

import (
	_ "go.etcd.io/etcd/etcdctl/v3/ctlv3"
	_ "go.etcd.io/etcd/etcdutl/v3/etcdutl"
	_ "go.etcd.io/etcd/server/v3/etcdmain"
)
