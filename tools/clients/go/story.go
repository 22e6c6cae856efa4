package main

import (
	"context"
	"fmt"
	"os"
	"reflect"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
)

func fail(format string, args ...any) {
	fmt.Printf("DIFFERS: "+format+"\n", args...)
	os.Exit(1)
}

// say prints a step and what came of it.
func say(step string, got any) { fmt.Printf("%s: %v\n", step, got) }

// expect is say, and the end when something else was to come of it.
func expect(step string, got, want any) {
	say(step, got)
	if !reflect.DeepEqual(got, want) {
		fail("wanted %v", want)
	}
}

// must takes the value of a call that has to succeed.
func must[T any](value T, err error) T {
	ok(err)
	return value
}

func ok(err error) {
	if err != nil {
		fail("%v", err)
	}
}

// refused prints how a call failed: code, reason, message and causes, as clients read them.
func refused(step string, err error, reason metav1.StatusReason) {
	status, isStatus := err.(apierrors.APIStatus)
	if !isStatus {
		fail("%s: wanted a refusal, got %v", step, err)
	}
	answer := status.Status()
	fmt.Printf("%s: %d %s\n", step, answer.Code, answer.Message)
	if answer.Details != nil {
		for _, cause := range answer.Details.Causes {
			fmt.Printf("  %s %s: %s\n", cause.Type, cause.Field, cause.Message)
		}
	}
	if apierrors.ReasonForError(err) != reason {
		fail("wanted reason %s, got %s", reason, apierrors.ReasonForError(err))
	}
}

// patience is how long anything may take that is sure to come: machines are slow and busy, and the collector of
// garbage learns of new kinds every half minute.
const patience = 4 * time.Minute

// eventually waits for a condition.
func eventually(ctx context.Context, what string, condition func() bool) {
	err := wait.PollUntilContextTimeout(ctx, 50*time.Millisecond, patience, true,
		func(context.Context) (bool, error) { return condition(), nil })
	if err != nil {
		fail("not within %v: %s", patience, what)
	}
	say(what, true)
}

// namespace makes one and returns what deletes it again.
func namespace(ctx context.Context, clients kubernetes.Interface, name string) func() {
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	must(clients.CoreV1().Namespaces().Create(ctx, object, metav1.CreateOptions{}))
	return func() {
		ok(clients.CoreV1().Namespaces().Delete(ctx, name, metav1.DeleteOptions{}))
		eventually(ctx, "namespace "+name+" is gone", func() bool {
			_, err := clients.CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
	}
}
