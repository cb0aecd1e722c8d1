package main

import (
	"fmt"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sort"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
	"sigs.k8s.io/yaml"
)

// compare reports differences between a chart rendered with these values and manifests, with an API server's defaults
// filled in.
func compare(rules *definitions, chart, values string, manifests []string, mayHaveMore bool) ([]string, error) {
	text, err := render(chart, values)
	if err != nil {
		return nil, err
	}
	rendered, problems := checkText(rules, values, []byte(text))
	written, wrong, err := checkFiles(rules, manifests)
	if err != nil {
		return nil, err
	}
	problems = append(problems, wrong...)
	if len(problems) > 0 {
		return problems, nil
	}

	ours, theirs := byName(written), byName(rendered)
	var names []string
	for name := range ours {
		names = append(names, name)
	}
	for name := range theirs {
		if _, found := ours[name]; !found && !mayHaveMore {
			problems = append(problems, fmt.Sprintf("%s: only the chart has it", name))
		}
	}
	sort.Strings(names)
	for _, name := range names {
		other, found := theirs[name]
		if !found {
			problems = append(problems, fmt.Sprintf("%s: only the manifests have it", name))
			continue
		}
		mine, err := comparable(ours[name])
		if err != nil {
			return nil, err
		}
		its, err := comparable(other)
		if err != nil {
			return nil, err
		}
		if difference := cmp.Diff(mine, its); difference != "" {
			problems = append(problems, fmt.Sprintf("%s: manifest (-) and chart (+):\n%s", name, difference))
		}
	}
	return problems, nil
}

func byName(objects []object) map[string]runtime.Object {
	named := map[string]runtime.Object{}
	for _, object := range objects {
		// The operator who installs a chart makes the namespaces.
		if object.kind != "Namespace" {
			named[object.kind+" "+object.namespace+"/"+object.name] = object.stored
		}
	}
	return named
}

// comparable is the object as JSON, without parts that only one of the two can have.
func comparable(stored runtime.Object) (any, error) {
	stored = stored.DeepCopyObject()
	accessor, err := meta.Accessor(stored)
	if err != nil {
		return nil, err
	}
	accessor.SetLabels(without(accessor.GetLabels()))
	accessor.SetAnnotations(without(accessor.GetAnnotations()))
	accessor.SetUID("")
	accessor.SetCreationTimestamp(metav1.Time{})
	switch object := stored.(type) {
	case *apps.StatefulSet:
		object.Spec.Template.Annotations = without(object.Spec.Template.Annotations)
	case *core.ConfigMap:
		// Ignores comments and order.
		for name, text := range object.Data {
			json, err := yaml.YAMLToJSONStrict([]byte(text))
			if err != nil {
				return nil, err
			}
			object.Data[name] = string(json)
		}
	}
	return stored, nil
}

// without removes labels and annotations about the chart itself.
func without(texts map[string]string) map[string]string {
	left := map[string]string{}
	for name, text := range texts {
		switch name {
		case "app.kubernetes.io/managed-by", "app.kubernetes.io/version", "helm.sh/chart", "helm.sh/resource-policy", "credence/settings":
		default:
			left[name] = text
		}
	}
	return left
}
