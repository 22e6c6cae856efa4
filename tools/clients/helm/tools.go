//go:build tools

// Package tools pins the version of Helm that the tests run.
package tools

import _ "helm.sh/helm/v3/cmd/helm"
