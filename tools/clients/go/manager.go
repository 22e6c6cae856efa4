package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	clientscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	"sigs.k8s.io/yaml"
)

const (
	finalizer = "go.example.com/copies"
	inManager = "go-manager"
)

// manager runs a controller of controller-runtime over a kind of its own, and does to it what users do.
func manager(ctx context.Context, config *rest.Config) {
	clients := kubernetes.NewForConfigOrDie(config)
	drop := namespace(ctx, clients, inManager)
	scheme := runtime.NewScheme()
	ok(clientscheme.AddToScheme(scheme))
	ok(addGadgets(scheme))
	direct := must(client.New(config, client.Options{Scheme: scheme}))
	definition := define(ctx, direct)

	made := must(ctrl.NewManager(config, ctrl.Options{
		Scheme: scheme, Metrics: server.Options{BindAddress: "0"},
		LeaderElection: true, LeaderElectionID: "copier", LeaderElectionNamespace: inManager,
		LeaderElectionReleaseOnCancel: true,
		Cache:                         cache.Options{DefaultNamespaces: map[string]cache.Config{inManager: {}}},
	}))
	copier := &copier{client: made.GetClient(), scheme: scheme}
	ok(ctrl.NewControllerManagedBy(made).For(&Gadget{}).Owns(&corev1.ConfigMap{}).Complete(copier))
	running, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- made.Start(running) }()
	use(ctx, direct)
	stop()
	expect("the manager ends", <-ended, nil)

	ok(direct.Delete(ctx, definition))
	eventually(ctx, "the definition is gone", func() bool {
		return apierrors.IsNotFound(direct.Get(ctx, client.ObjectKeyFromObject(definition), definition))
	})
	drop()
}

func define(ctx context.Context, direct client.Client) *unstructured.Unstructured {
	definition := &unstructured.Unstructured{}
	ok(yaml.Unmarshal(gadgetDefinition, &definition.Object))
	ok(direct.Create(ctx, definition))
	eventually(ctx, "the kind is established", func() bool {
		ok(direct.Get(ctx, client.ObjectKeyFromObject(definition), definition))
		conditions, _, _ := unstructured.NestedSlice(definition.Object, "status", "conditions")
		for _, one := range conditions {
			if condition := one.(map[string]any); condition["type"] == "Established" && condition["status"] == "True" {
				return true
			}
		}
		return false
	})
	eventually(ctx, "the kind is served", func() bool {
		err := direct.List(ctx, &GadgetList{}, client.InNamespace(inManager))
		return err == nil || !apierrors.IsNotFound(err) && !meta.IsNoMatchError(err)
	})
	return definition
}

func use(ctx context.Context, direct client.Client) {
	gadget := &Gadget{ObjectMeta: metav1.ObjectMeta{Name: "g", Namespace: inManager}, Spec: GadgetSpec{Text: "hello"}}
	ok(direct.Create(ctx, gadget))
	expect("a default", *gadget.Spec.Copies, 1)
	key := client.ObjectKeyFromObject(gadget)
	settled := func(copies int) {
		eventually(ctx, fmt.Sprintf("%d copies", copies), func() bool {
			ok(direct.Get(ctx, key, gadget))
			return gadget.Status.Copies == copies && gadget.Status.ObservedGeneration == gadget.Generation
		})
		say("generation", gadget.Generation)
	}
	settled(1)
	say("finalizers", gadget.Finalizers)

	before := gadget.copy()
	copies := 3
	gadget.Spec.Copies = &copies
	ok(direct.Patch(ctx, gadget, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})))
	settled(3)
	gadget.Spec.Text = "much too long"
	refused("a wrong text", direct.Update(ctx, gadget), metav1.StatusReasonInvalid)
	stale := gadget.copy()
	stale.ResourceVersion = before.ResourceVersion
	refused("a patch of an old state", direct.Patch(ctx, stale, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})), metav1.StatusReasonConflict)
	before.Spec.Text = "old"
	refused("an old state", direct.Update(ctx, before), metav1.StatusReasonConflict)

	one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "g-1", Namespace: inManager}}
	ok(direct.Get(ctx, client.ObjectKeyFromObject(one), one))
	owner := metav1.GetControllerOf(one)
	say("owner", fmt.Sprint(owner.Kind, " ", owner.Name, " ", *owner.BlockOwnerDeletion))
	uid := one.UID
	ok(direct.Delete(ctx, one))
	eventually(ctx, "a copy that was deleted comes back", func() bool {
		err := direct.Get(ctx, client.ObjectKeyFromObject(one), one)
		return err == nil && one.UID != uid
	})
	ok(direct.Delete(ctx, gadget))
	eventually(ctx, "the gadget is let go", func() bool {
		return apierrors.IsNotFound(direct.Get(ctx, key, gadget))
	})
	eventually(ctx, "its copies are collected", func() bool {
		all := &corev1.ConfigMapList{}
		ok(direct.List(ctx, all, client.InNamespace(inManager), client.MatchingLabels{"of": "g"}))
		return len(all.Items) == 0
	})
}

// copier keeps as many ConfigMaps as a Gadget wants.
type copier struct {
	client client.Client
	scheme *runtime.Scheme
}

func (c *copier) Reconcile(ctx context.Context, request ctrl.Request) (ctrl.Result, error) {
	gadget := &Gadget{}
	if err := c.client.Get(ctx, request.NamespacedName, gadget); err != nil {
		return ctrl.Result{}, client.IgnoreNotFound(err)
	}
	if !gadget.DeletionTimestamp.IsZero() {
		controllerutil.RemoveFinalizer(gadget, finalizer)
		return ctrl.Result{}, client.IgnoreNotFound(c.client.Update(ctx, gadget))
	}
	if controllerutil.AddFinalizer(gadget, finalizer) {
		return ctrl.Result{}, c.client.Update(ctx, gadget)
	}
	for i := range *gadget.Spec.Copies {
		one := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", gadget.Name, i), Namespace: gadget.Namespace}}
		_, err := controllerutil.CreateOrUpdate(ctx, c.client, one, func() error {
			one.Labels = map[string]string{"of": gadget.Name}
			one.Data = map[string]string{"text": gadget.Spec.Text}
			return controllerutil.SetControllerReference(gadget, one, c.scheme)
		})
		if err != nil {
			return ctrl.Result{}, err
		}
	}
	before := gadget.copy()
	gadget.Status = GadgetStatus{Copies: *gadget.Spec.Copies, ObservedGeneration: gadget.Generation}
	return ctrl.Result{}, c.client.Status().Patch(ctx, gadget, client.MergeFrom(before))
}
