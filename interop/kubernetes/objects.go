package main

import (
	"bufio"
	"bytes"
	"fmt"
	"io"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	yamlreader "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// object is a valid object as the API server stores it, defaults included.
type object struct {
	kind, namespace, name string
	stored                runtime.Object
}

// checkText checks every document of a file.
func checkText(rules *definitions, path string, text []byte) ([]object, []string) {
	var objects []object
	var problems []string
	reader := yamlreader.NewYAMLReader(bufio.NewReader(bytes.NewReader(text)))
	for number := 1; ; number++ {
		document, err := reader.Read()
		if err == io.EOF {
			return objects, problems
		}
		place := fmt.Sprintf("%s: document %d", path, number)
		if err != nil {
			return objects, append(problems, fmt.Sprintf("%s: %v", place, err))
		}
		// Strict: a repeated member is an error.
		json, err := yaml.YAMLToJSONStrict(document)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", place, err))
			continue
		}
		if string(json) == "null" {
			continue
		}
		var raw unstructured.Unstructured
		if err := raw.UnmarshalJSON(json); err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", place, err))
			continue
		}
		place = fmt.Sprintf("%s: %s %s", path, raw.GetKind(), raw.GetName())
		stored, wrong := create(rules, &raw, json)
		for _, problem := range wrong {
			problems = append(problems, fmt.Sprintf("%s: %s", place, problem))
		}
		objects = append(objects, object{raw.GetKind(), raw.GetNamespace(), raw.GetName(), stored})
	}
}

// create does what the API server does when an object is created.
func create(rules *definitions, raw *unstructured.Unstructured, json []byte) (runtime.Object, []string) {
	kind := raw.GroupVersionKind()
	if isOfKubernetesItself(kind) {
		return createBuiltIn(json)
	}
	if definition, found := rules.byKind[kind]; found {
		return definition.create(raw)
	}
	return raw, []string{fmt.Sprintf("there is no definition of %s", kind)}
}
