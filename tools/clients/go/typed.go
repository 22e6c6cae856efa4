package main

import (
	"context"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	corev1apply "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/retry"
	"k8s.io/utils/ptr"
)

// typed speaks protobuf, as Kubernetes' own components do.
func typed(ctx context.Context, config *rest.Config) {
	config = rest.CopyConfig(config)
	config.ContentType = runtime.ContentTypeProtobuf
	config.AcceptContentTypes = runtime.ContentTypeProtobuf + "," + runtime.ContentTypeJSON
	clients := kubernetes.NewForConfigOrDie(config)
	drop := namespace(ctx, clients, "go-typed")
	configMaps(ctx, clients.CoreV1().ConfigMaps("go-typed"))
	pages(ctx, clients.CoreV1().Secrets("go-typed"))
	workload(ctx, clients)
	access(ctx, config, clients)
	events(ctx, clients)
	drop()
}

func configMaps(ctx context.Context, maps corev1client.ConfigMapInterface) {
	object := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{Name: "one", Labels: map[string]string{"set": "a"}},
		Data:       map[string]string{"key": "1"},
		BinaryData: map[string][]byte{"raw": {0, 1, 255}},
	}
	made := must(maps.Create(ctx, object, metav1.CreateOptions{}))
	expect("created with bytes", made.BinaryData["raw"], []byte{0, 1, 255})
	_, err := maps.Create(ctx, object, metav1.CreateOptions{})
	refused("created again", err, metav1.StatusReasonAlreadyExists)
	_, err = maps.Get(ctx, "two", metav1.GetOptions{})
	refused("got another", err, metav1.StatusReasonNotFound)
	bad := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "Bad_Name"}, Data: map[string]string{"a b": ""}}
	_, err = maps.Create(ctx, bad, metav1.CreateOptions{})
	refused("created with bad names", err, metav1.StatusReasonInvalid)
	generated := must(maps.Create(ctx, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "some-"}}, metav1.CreateOptions{}))
	expect("generated name", len(generated.Name), len("some-")+5)

	stale := made.DeepCopy()
	made.Data["key"] = "2"
	updated := must(maps.Update(ctx, made, metav1.UpdateOptions{FieldManager: "typist"}))
	expect("updated", updated.Data["key"], "2")
	stale.Data["key"] = "3"
	_, err = maps.Update(ctx, stale, metav1.UpdateOptions{})
	refused("updated from an old state", err, metav1.StatusReasonConflict)
	ok(retry.RetryOnConflict(retry.DefaultRetry, func() error {
		latest := must(maps.Get(ctx, "one", metav1.GetOptions{}))
		latest.Data["key"] = "3"
		_, err := maps.Update(ctx, latest, metav1.UpdateOptions{})
		return err
	}))

	for kind, patch := range []struct {
		kind types.PatchType
		body string
	}{
		{types.JSONPatchType, `[{"op":"replace","path":"/data/key","value":"4"}]`},
		{types.MergePatchType, `{"data":{"key":"5"}}`},
		{types.StrategicMergePatchType, `{"metadata":{"labels":{"set":"b"}},"data":{"key":"6"}}`},
	} {
		patched := must(maps.Patch(ctx, "one", patch.kind, []byte(patch.body), metav1.PatchOptions{}))
		say(fmt.Sprintf("patch %d", kind), patched.Data)
	}
	_, err = maps.Patch(ctx, "one", types.JSONPatchType, []byte(`[{"op":"test","path":"/data/key","value":"no"}]`), metav1.PatchOptions{})
	refused("patch whose test fails", err, metav1.StatusReasonInvalid)

	mine := corev1apply.ConfigMap("one", "go-typed").WithData(map[string]string{"key": "7"})
	_, err = maps.Apply(ctx, mine, metav1.ApplyOptions{FieldManager: "applier"})
	refused("applied over others", err, metav1.StatusReasonConflict)
	applied := must(maps.Apply(ctx, mine, metav1.ApplyOptions{FieldManager: "applier", Force: true}))
	expect("applied by force", applied.Data["key"], "7")
	extracted := must(corev1apply.ExtractConfigMap(applied, "applier"))
	expect("extracted", extracted.Data, map[string]string{"key": "7"})

	dry := must(maps.Patch(ctx, "one", types.MergePatchType, []byte(`{"data":{"key":"8"}}`), metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}}))
	expect("dry run", dry.Data["key"], "8")
	expect("after it", must(maps.Get(ctx, "one", metav1.GetOptions{})).Data["key"], "7")
	err = maps.Delete(ctx, "one", *metav1.NewPreconditionDeleteOptions("00000000-0000-0000-0000-000000000000"))
	if !apierrors.IsConflict(err) {
		fail("deleted with another uid: %v", err)
	}
	ok(maps.Delete(ctx, "one", *metav1.NewPreconditionDeleteOptions(string(made.UID))))
	_, err = maps.Get(ctx, "one", metav1.GetOptions{})
	refused("got after deletion", err, metav1.StatusReasonNotFound)
}

func pages(ctx context.Context, secrets corev1client.SecretInterface) {
	for i := range 7 {
		secret := &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("page-%d", i), Labels: map[string]string{"odd": fmt.Sprint(i % 2)}},
			StringData: map[string]string{"text": fmt.Sprint(i)},
		}
		must(secrets.Create(ctx, secret, metav1.CreateOptions{}))
	}
	options := metav1.ListOptions{Limit: 3}
	for {
		page := must(secrets.List(ctx, options))
		names := []string{}
		for _, secret := range page.Items {
			names = append(names, secret.Name+"="+string(secret.Data["text"]))
		}
		say("page", names)
		left := int64(0)
		if page.RemainingItemCount != nil {
			left = *page.RemainingItemCount
		}
		say("remaining", left)
		if page.Continue == "" {
			break
		}
		options.Continue = page.Continue
	}
	expect("of a label", len(must(secrets.List(ctx, metav1.ListOptions{LabelSelector: "odd=1"})).Items), 3)
	expect("of a field", len(must(secrets.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name!=page-0,type=Opaque"})).Items), 6)
	_, err := secrets.List(ctx, metav1.ListOptions{LabelSelector: "odd=="})
	say("an empty value is a value", err)
	_, err = secrets.List(ctx, metav1.ListOptions{LabelSelector: "odd in"})
	refused("bad selector", err, metav1.StatusReasonBadRequest)
	_, err = secrets.List(ctx, metav1.ListOptions{Limit: 1, Continue: "wrong"})
	refused("bad continue", err, metav1.StatusReasonBadRequest)

	seen := must(secrets.Watch(ctx, metav1.ListOptions{LabelSelector: "odd=1", ResourceVersion: must(secrets.List(ctx, metav1.ListOptions{})).ResourceVersion}))
	must(secrets.Patch(ctx, "page-0", types.MergePatchType, []byte(`{"metadata":{"labels":{"odd":"1"}}}`), metav1.PatchOptions{}))
	must(secrets.Patch(ctx, "page-1", types.MergePatchType, []byte(`{"metadata":{"labels":{"odd":"0"}}}`), metav1.PatchOptions{}))
	must(secrets.Patch(ctx, "page-3", types.MergePatchType, []byte(`{"data":{"text":"eA=="}}`), metav1.PatchOptions{}))
	for range 3 {
		event := <-seen.ResultChan()
		say(fmt.Sprintf("seen %s", event.Type), event.Object.(*corev1.Secret).Name)
	}
	seen.Stop()
	ok(secrets.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{LabelSelector: "odd=0"}))
	expect("after a collection went", len(must(secrets.List(ctx, metav1.ListOptions{})).Items), 3)
}

func workload(ctx context.Context, clients kubernetes.Interface) {
	deployments := clients.AppsV1().Deployments("go-typed")
	labels := map[string]string{"app": "web"}
	deployment := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](2),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "web", Image: "example.com/web",
					Ports:     []corev1.ContainerPort{{ContainerPort: 80}},
					Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("0.01")}},
				}}},
			},
		},
	}
	made := must(deployments.Create(ctx, deployment, metav1.CreateOptions{}))
	say("defaults", fmt.Sprint(made.Spec.Strategy.Type, " ", made.Spec.Strategy.RollingUpdate.MaxSurge, " ", *made.Spec.RevisionHistoryLimit))
	say("a quantity", made.Spec.Template.Spec.Containers[0].Resources.Requests.Cpu())
	eventually(ctx, "two pods are ready", func() bool {
		return must(deployments.Get(ctx, "web", metav1.GetOptions{})).Status.ReadyReplicas == 2
	})
	scale := must(deployments.GetScale(ctx, "web", metav1.GetOptions{}))
	say("scale", fmt.Sprint(scale.Spec.Replicas, " ", scale.Status.Selector))
	scale.Spec.Replicas = 3
	expect("scaled", must(deployments.UpdateScale(ctx, "web", scale, metav1.UpdateOptions{})).Spec.Replicas, int32(3))

	budgets := clients.PolicyV1().PodDisruptionBudgets("go-typed")
	budget := &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromString("100%")), Selector: &metav1.LabelSelector{MatchLabels: labels},
		},
	}
	must(budgets.Create(ctx, budget, metav1.CreateOptions{}))
	eventually(ctx, "three pods are healthy", func() bool {
		return must(budgets.Get(ctx, "web", metav1.GetOptions{})).Status.CurrentHealthy == 3
	})
	pods := clients.CoreV1().Pods("go-typed")
	pod := must(pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})).Items[0].Name
	eviction := &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: "go-typed"}}
	err := pods.EvictV1(ctx, eviction)
	refused("evicted against the budget", err, metav1.StatusReasonTooManyRequests)
	expect("for the budget", apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), true)
	ok(budgets.Delete(ctx, "web", metav1.DeleteOptions{}))
	ok(pods.EvictV1(ctx, eviction))
	eventually(ctx, "the pod is gone", func() bool {
		_, err := pods.Get(ctx, pod, metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	eventually(ctx, "another pod is in its place", func() bool {
		running := 0
		for _, pod := range must(pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})).Items {
			if pod.Status.Phase == corev1.PodRunning && pod.DeletionTimestamp == nil {
				running++
			}
		}
		return running == 3
	})
	foreground := metav1.DeletePropagationForeground
	ok(deployments.Delete(ctx, "web", metav1.DeleteOptions{PropagationPolicy: &foreground}))
	eventually(ctx, "the deployment is gone after its pods", func() bool {
		_, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	expect("pods left", len(must(pods.List(ctx, metav1.ListOptions{LabelSelector: "app=web"})).Items), 0)
}

func access(ctx context.Context, config *rest.Config, clients kubernetes.Interface) {
	accounts := clients.CoreV1().ServiceAccounts("go-typed")
	must(accounts.Create(ctx, &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "robot"}}, metav1.CreateOptions{}))
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](600)}}
	token := must(accounts.CreateToken(ctx, "robot", request, metav1.CreateOptions{})).Status.Token

	bearer := rest.AnonymousClientConfig(config)
	bearer.BearerToken = token
	robot := kubernetes.NewForConfigOrDie(bearer)
	who := must(robot.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{}))
	expect("who it is", who.Status.UserInfo.Username, "system:serviceaccount:go-typed:robot")
	_, err := robot.CoreV1().Secrets("go-typed").List(ctx, metav1.ListOptions{})
	refused("what it may not", err, metav1.StatusReasonForbidden)
	review := must(clients.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token}}, metav1.CreateOptions{}))
	say("token review", fmt.Sprint(review.Status.Authenticated, " ", review.Status.User.Username, " ", review.Status.User.Groups))
	may := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{
		User:               "jane",
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: "get", Resource: "pods", Namespace: "go-typed"},
	}}
	expect("what jane may", must(clients.AuthorizationV1().SubjectAccessReviews().Create(ctx, may, metav1.CreateOptions{})).Status.Allowed, false)
	bearer.BearerToken = "wrong"
	_, err = kubernetes.NewForConfigOrDie(bearer).CoreV1().Pods("go-typed").List(ctx, metav1.ListOptions{})
	refused("with a wrong token", err, metav1.StatusReasonUnauthorized)
}

// events of one kind are counted in one object.
func events(ctx context.Context, clients kubernetes.Interface) {
	broadcaster := record.NewBroadcaster(record.WithContext(ctx))
	broadcaster.StartRecordingToSink(&corev1client.EventSinkImpl{Interface: clients.CoreV1().Events("")})
	recorder := broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: "stories"})
	account := must(clients.CoreV1().ServiceAccounts("go-typed").Get(ctx, "robot", metav1.GetOptions{}))
	for range 3 {
		recorder.Event(account, corev1.EventTypeNormal, "Told", "the same again")
	}
	eventually(ctx, "one event counts to three", func() bool {
		all := must(clients.CoreV1().Events("go-typed").List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=robot,reason=Told"}))
		return len(all.Items) == 1 && all.Items[0].Count == 3
	})
	broadcaster.Shutdown()
}
