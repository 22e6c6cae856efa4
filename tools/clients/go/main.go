// Command go tells stories with client-go and controller-runtime that must come out alike on every API server:
// it prints a line a step and ends with 1 at the first that is not as a user expects.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
)

var stories = map[string]func(context.Context, *rest.Config){
	"typed":     typed,
	"informers": informers,
	"election":  election,
	"manager":   manager,
}

func main() {
	known := strings.Join(slices.Sorted(maps.Keys(stories)), "|")
	if len(os.Args) != 2 || stories[os.Args[1]] == nil {
		fmt.Fprintf(os.Stderr, "usage: %s %s\n", os.Args[0], known)
		os.Exit(2)
	}
	// What is logged on the way is of no interest, and differs.
	klog.SetLogger(logr.Discard())
	ctrl.SetLogger(logr.Discard())
	config, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fail("the kubeconfig cannot be used: %v", err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	stories[os.Args[1]](ctx, config)
	fmt.Println("done")
}
