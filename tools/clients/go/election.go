package main

import (
	"context"
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// election has one leader at a time: the second waits until the first lets go, the third until the second is dead.
func election(ctx context.Context, config *rest.Config) {
	clients := kubernetes.NewForConfigOrDie(config)
	drop := namespace(ctx, clients, "go-election")
	leading := make(chan string)
	// Nobody else may lead, however long a busy machine keeps it from renewing its lease; what is waited for is short.
	const long, short = 40 * time.Second, 4 * time.Second
	first := stand(ctx, clients, "first", true, long, leading)
	expect("leads", <-leading, "first")
	lease(ctx, clients)
	second := stand(ctx, clients, "second", false, short, leading)
	select {
	case who := <-leading:
		fail("there are two leaders: %s", who)
	case <-time.After(3 * time.Second):
		say("while the first leads", "nobody else does")
	}
	first()
	expect("leads", <-leading, "second")
	lease(ctx, clients)
	second()
	third := stand(ctx, clients, "third", true, long, leading)
	expect("leads when the lease has run out", <-leading, "third")
	lease(ctx, clients)
	third()
	eventually(ctx, "the lease is let go", func() bool {
		lease := must(clients.CoordinationV1().Leases("go-election").Get(ctx, "boss", metav1.GetOptions{}))
		return lease.Spec.HolderIdentity == nil || *lease.Spec.HolderIdentity == ""
	})
	drop()
}

func lease(ctx context.Context, clients kubernetes.Interface) {
	spec := must(clients.CoordinationV1().Leases("go-election").Get(ctx, "boss", metav1.GetOptions{})).Spec
	say("lease", fmt.Sprintf("%s for %d s, %d transitions", *spec.HolderIdentity, *spec.LeaseDurationSeconds, *spec.LeaseTransitions))
}

// stand puts up a candidate whose lease holds so long, and returns what ends it: as it should, or without a word.
func stand(ctx context.Context, clients kubernetes.Interface, name string, polite bool, term time.Duration, leading chan<- string) func() {
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan struct{})
	elector := must(leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock: must(resourcelock.New(resourcelock.LeasesResourceLock, "go-election", "boss",
			clients.CoreV1(), clients.CoordinationV1(), resourcelock.ResourceLockConfig{Identity: name})),
		LeaseDuration: term, RenewDeadline: term * 3 / 4, RetryPeriod: 500 * time.Millisecond,
		ReleaseOnCancel: polite,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { leading <- name },
			OnStoppedLeading: func() {},
		},
	}))
	go func() {
		elector.Run(ctx)
		close(ended)
	}()
	return func() {
		cancel()
		<-ended
	}
}
