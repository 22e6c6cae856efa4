package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/dynamic/dynamicinformer"
	clientinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/metadata/metadatainformer"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

// informers watch the same objects in three ways, through a connection that is cut and a history that is lost.
func informers(ctx context.Context, config *rest.Config) {
	clients := kubernetes.NewForConfigOrDie(config)
	drop := namespace(ctx, clients, "go-informers")
	maps := clients.CoreV1().ConfigMaps("go-informers")
	write := func(name, value string) {
		must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": value}}, metav1.CreateOptions{}))
	}
	write("first", "1")

	breaker := &breaker{open: map[io.Closer]struct{}{}}
	watched := rest.CopyConfig(config)
	watched.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(request *http.Request) (*http.Response, error) { return breaker.pass(next, request) })
	})
	ctx, cancel := context.WithCancel(ctx)
	views := start(ctx, watched)
	seen := func(wanted ...string) {
		for _, view := range views {
			view.wait(ctx, wanted)
		}
	}
	seen("added first")
	write("second", "2")
	seen("added second")
	must(maps.Patch(ctx, "second", "application/merge-patch+json", []byte(`{"data":{"value":"3"}}`), metav1.PatchOptions{}))
	seen("updated second")

	breaker.cut(0)
	write("third", "while nobody watched")
	ok(maps.Delete(ctx, "first", metav1.DeleteOptions{}))
	seen("added third", "deleted first")
	say("after the cut connections", "nothing was missed")

	breaker.cut(http.StatusGone)
	ok(maps.Delete(ctx, "second", metav1.DeleteOptions{}))
	write("fourth", "after the lost history")
	seen("added fourth", "deleted second")
	say("after the lost history", "nothing was missed")
	for _, view := range views {
		names := []string{}
		for _, key := range view.informer.GetStore().ListKeys() {
			if !strings.HasSuffix(key, "/kube-root-ca.crt") {
				names = append(names, key)
			}
		}
		expect(view.name+" holds", len(names), 2)
	}
	cancel()
	drop()
}

// view is an informer and what it was told.
type view struct {
	name     string
	informer cache.SharedIndexInformer
	told     chan string
}

func start(ctx context.Context, config *rest.Config) []*view {
	maps := schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}
	const resync = 0
	typed := clientinformers.NewSharedInformerFactoryWithOptions(kubernetes.NewForConfigOrDie(config), resync, clientinformers.WithNamespace("go-informers"))
	free := dynamicinformer.NewFilteredDynamicSharedInformerFactory(dynamic.NewForConfigOrDie(config), resync, "go-informers", nil)
	partial := metadatainformer.NewFilteredSharedInformerFactory(metadata.NewForConfigOrDie(config), resync, "go-informers", nil)
	views := []*view{
		{name: "typed", informer: typed.Core().V1().ConfigMaps().Informer()},
		{name: "dynamic", informer: free.ForResource(maps).Informer()},
		{name: "metadata", informer: partial.ForResource(maps).Informer()},
	}
	for _, view := range views {
		view.told = make(chan string, 100)
		tell := func(what string) func(any) {
			return func(object any) {
				if gone, isGone := object.(cache.DeletedFinalStateUnknown); isGone {
					object = gone.Obj
				}
				view.told <- what + " " + must(meta.Accessor(object.(runtime.Object))).GetName()
			}
		}
		updated := tell("updated")
		must(view.informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
			AddFunc: tell("added"), DeleteFunc: tell("deleted"),
			UpdateFunc: func(_, object any) { updated(object) },
		}))
		go view.informer.RunWithContext(ctx)
		expect(view.name+" has synced", cache.WaitForCacheSync(ctx.Done(), view.informer.HasSynced), true)
	}
	return views
}

// wait is over when all of it was told, in any order: a list tells what is there before what is gone.
func (view *view) wait(ctx context.Context, wanted []string) {
	left := sets.New(wanted...)
	limit := time.After(patience)
	for left.Len() > 0 {
		select {
		case got := <-view.told:
			left.Delete(got)
		case <-limit:
			fail("%s was not told within %v: %v", view.name, patience, sets.List(left))
		case <-ctx.Done():
			fail("%s was not told in time: %v", view.name, sets.List(left))
		}
	}
	say(view.name+" was told", wanted)
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(request *http.Request) (*http.Response, error) { return f(request) }

// breaker ends watches, as a network does, and answers the next ones with an error, as a server does.
type breaker struct {
	mutex sync.Mutex
	open  map[io.Closer]struct{}
	// Watches that are still to be refused, and the code.
	refuse, code int
}

func (b *breaker) pass(next http.RoundTripper, request *http.Request) (*http.Response, error) {
	if !request.URL.Query().Has("watch") {
		return next.RoundTrip(request)
	}
	b.mutex.Lock()
	refused := b.refuse > 0 && !request.URL.Query().Has("sendInitialEvents")
	if refused {
		b.refuse--
	}
	b.mutex.Unlock()
	if refused {
		status := must(json.Marshal(metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
			Status:   metav1.StatusFailure, Code: int32(b.code), Reason: metav1.StatusReasonExpired, Message: "too old resource version",
		}))
		return &http.Response{
			StatusCode: b.code, Request: request, Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
			Header: http.Header{"Content-Type": {"application/json"}},
			Body:   io.NopCloser(strings.NewReader(string(status))),
		}, nil
	}
	response, err := next.RoundTrip(request)
	if err == nil {
		b.mutex.Lock()
		b.open[response.Body] = struct{}{}
		b.mutex.Unlock()
	}
	return response, err
}

// cut ends all watches that are open; as many are then refused with the code, if one is given.
func (b *breaker) cut(code int) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	for body := range b.open {
		ok(body.Close())
	}
	b.code = code
	if code != 0 {
		b.refuse = len(b.open)
	}
	fmt.Println("the watches are cut")
	clear(b.open)
}
