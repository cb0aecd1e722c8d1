package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	apiextensions "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	structural "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/cel"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/defaulting"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	celconfig "k8s.io/apiserver/pkg/apis/cel"
	"sigs.k8s.io/yaml"
)

// definitions are the available custom resource definitions.
type definitions struct {
	byKind map[schema.GroupVersionKind]*definition
}

// definition is the schema of one version of a custom resource.
type definition struct {
	isNamespaced bool
	structural   *structural.Structural
	schema       validation.SchemaValidator
	rules        *cel.Validator
}

func readDefinitions(folder string) (*definitions, error) {
	paths, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return nil, err
	}
	found := &definitions{byKind: map[schema.GroupVersionKind]*definition{}}
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, document := range strings.Split(string(text), "\n---\n") {
			if err := found.read(document); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	if len(found.byKind) == 0 {
		return nil, fmt.Errorf("%s has no custom resource definitions", folder)
	}
	return found, nil
}

func (all *definitions) read(document string) error {
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal([]byte(document), &crd); err != nil {
		return err
	}
	if crd.Kind != "CustomResourceDefinition" {
		return nil
	}
	for _, version := range crd.Spec.Versions {
		if version.Schema == nil {
			continue
		}
		var props apiextensions.JSONSchemaProps
		err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(version.Schema.OpenAPIV3Schema, &props, nil)
		if err != nil {
			return err
		}
		shape, err := structural.NewStructural(&props)
		if err != nil {
			return err
		}
		validator, _, err := validation.NewSchemaValidator(&props)
		if err != nil {
			return err
		}
		kind := schema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name, Kind: crd.Spec.Names.Kind}
		all.byKind[kind] = &definition{
			isNamespaced: crd.Spec.Scope == apiextensionsv1.NamespaceScoped,
			structural:   shape,
			schema:       validator,
			rules:        cel.NewValidator(shape, true, celconfig.PerCallLimit),
		}
	}
	return nil
}

// create does what the API server does with a custom resource: unknown members, defaults, schema, rules.
func (definition *definition) create(raw *unstructured.Unstructured) (runtime.Object, []string) {
	var problems []string
	if definition.isNamespaced != (raw.GetNamespace() != "") {
		problems = append(problems, fmt.Sprintf("metadata.namespace: %q", raw.GetNamespace()))
	}
	content := raw.DeepCopy().Object
	unknown := pruning.PruneWithOptions(content, definition.structural, true, structural.UnknownFieldPathOptions{TrackUnknownFieldPaths: true})
	for _, path := range unknown {
		problems = append(problems, fmt.Sprintf("%s: unknown field", path))
	}
	defaulting.Default(content, definition.structural)
	errors := validation.ValidateCustomResource(nil, content, definition.schema)
	if definition.rules != nil {
		found, _ := definition.rules.Validate(context.Background(), nil, definition.structural, content, nil, celconfig.RuntimeCELCostBudget)
		errors = append(errors, found...)
	}
	return &unstructured.Unstructured{Object: content}, append(problems, texts(errors)...)
}

func texts(errors field.ErrorList) []string {
	var texts []string
	for _, problem := range errors {
		texts = append(texts, problem.Error())
	}
	return texts
}
