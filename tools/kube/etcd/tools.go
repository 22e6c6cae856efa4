//go:build tools

// Package tools pins etcd, in a module of its own: its gRPC and OpenTelemetry are not those of Kubernetes.
package tools

import _ "go.etcd.io/etcd/server/v3"
