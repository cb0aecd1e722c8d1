package main

import (
	"fmt"
	"path"
	"sort"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
)

// The manifests are for a release of this name in this namespace.
const (
	release   = "credence"
	namespace = "credence"
)

// render is `helm template`, with the values checked against the chart's schema.
func render(folder, valuesFile string) (string, error) {
	chart, err := loader.LoadDir(folder)
	if err != nil {
		return "", err
	}
	values, err := chartutil.ReadValuesFile(valuesFile)
	if err != nil {
		return "", err
	}
	options := chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}
	rendered, err := chartutil.ToRenderValuesWithSchemaValidation(chart, values, options, chartutil.DefaultCapabilities, false)
	if err != nil {
		return "", err
	}
	files, err := (engine.Engine{Strict: true}).Render(chart, rendered)
	if err != nil {
		return "", err
	}
	var names []string
	for name, text := range files {
		if path.Ext(name) == ".yaml" && strings.TrimSpace(text) != "" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	var all strings.Builder
	for _, name := range names {
		fmt.Fprintf(&all, "---\n# %s\n%s\n", name, files[name])
	}
	return all.String(), nil
}

// lintChart is `helm lint --strict`.
func lintChart(folder, valuesFile string) []string {
	values, err := chartutil.ReadValuesFile(valuesFile)
	if err != nil {
		return []string{err.Error()}
	}
	var problems []string
	for _, message := range lint.All(folder, values, namespace, true).Messages {
		// Recommendations, such as an icon, are not problems.
		if message.Severity >= support.WarningSev {
			problems = append(problems, fmt.Sprintf("%s: helm lint: %s", valuesFile, message.Error()))
		}
	}
	return problems
}
