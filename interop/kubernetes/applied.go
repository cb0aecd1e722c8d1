package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	"sigs.k8s.io/yaml"
)

// checkApplied checks the objects after a file was applied over manifests: each document is merged into the object of
// its kind and name, or added.
func checkApplied(rules *definitions, file string, manifests []string) ([]string, error) {
	var objects []*unstructured.Unstructured
	for _, path := range manifests {
		found, err := readObjects(path)
		if err != nil {
			return nil, err
		}
		objects = append(objects, found...)
	}
	changes, err := readObjects(file)
	if err != nil {
		return nil, err
	}
	for _, change := range changes {
		if objects, err = apply(change, objects); err != nil {
			return nil, fmt.Errorf("%s: %s %s: %w", file, change.GetKind(), change.GetName(), err)
		}
	}
	var all strings.Builder
	for _, object := range objects {
		text, err := yaml.Marshal(object.Object)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(&all, "---\n%s", text)
	}
	_, problems := checkText(rules, file+", applied", []byte(all.String()))
	return problems, nil
}

// apply merges lists as `kubectl apply` does: by their items' names.
func apply(change *unstructured.Unstructured, objects []*unstructured.Unstructured) ([]*unstructured.Unstructured, error) {
	for _, object := range objects {
		if !isSame(object, change) {
			continue
		}
		kind, err := legacyscheme.Scheme.New(object.GroupVersionKind())
		if err != nil {
			return nil, err
		}
		object.Object, err = strategicpatch.StrategicMergeMapPatch(object.Object, change.Object, kind)
		return objects, err
	}
	return append(objects, change), nil
}

func isSame(one, other *unstructured.Unstructured) bool {
	return one.GroupVersionKind() == other.GroupVersionKind() &&
		one.GetNamespace() == other.GetNamespace() && one.GetName() == other.GetName()
}

func readObjects(path string) ([]*unstructured.Unstructured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for {
		document, err := reader.Read()
		if err == io.EOF {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		json, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		if string(json) == "null" {
			continue
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(json); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		objects = append(objects, object)
	}
}
