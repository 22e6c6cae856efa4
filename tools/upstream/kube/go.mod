module drover.dev/tools/upstream/kube

go 1.26
