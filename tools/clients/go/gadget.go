package main

import (
	_ "embed"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/scheme"
)

//go:embed gadgets.yaml
var gadgetDefinition []byte

// Gadget is a kind of these stories: so many ConfigMaps of a text.
type Gadget struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              GadgetSpec   `json:"spec,omitempty"`
	Status            GadgetStatus `json:"status,omitempty"`
}

// GadgetSpec is what is wanted.
type GadgetSpec struct {
	Copies *int   `json:"copies,omitempty"`
	Text   string `json:"text,omitempty"`
}

// GadgetStatus is what is there.
type GadgetStatus struct {
	Copies             int   `json:"copies"`
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
}

// GadgetList is a list of them.
type GadgetList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Gadget `json:"items"`
}

func (in *Gadget) copy() *Gadget {
	out := *in
	out.ObjectMeta = *in.ObjectMeta.DeepCopy()
	if in.Spec.Copies != nil {
		copies := *in.Spec.Copies
		out.Spec.Copies = &copies
	}
	return &out
}

// DeepCopyObject is asked for by caches.
func (in *Gadget) DeepCopyObject() runtime.Object { return in.copy() }

// DeepCopyObject is asked for by caches.
func (in *GadgetList) DeepCopyObject() runtime.Object {
	out := &GadgetList{TypeMeta: in.TypeMeta, ListMeta: *in.ListMeta.DeepCopy()}
	for i := range in.Items {
		out.Items = append(out.Items, *in.Items[i].copy())
	}
	return out
}

var addGadgets = (&scheme.Builder{GroupVersion: schema.GroupVersion{Group: "go.example.com", Version: "v1"}}).
	Register(&Gadget{}, &GadgetList{}).AddToScheme
