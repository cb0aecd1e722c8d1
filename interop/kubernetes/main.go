// Validates manifests without a Kubernetes cluster: with the code of its API server, the published definitions of
// custom resources, and Helm's own engine.
//
//	kubernetes check CRDS FILE...              what is wrong with these manifests
//	kubernetes chart CRDS CHART                the same with the chart, for each of its ci/*-values.yaml
//	kubernetes same CRDS CHART VALUES FILE...  what differs between the rendered chart and these manifests
//	kubernetes has CRDS CHART VALUES FILE...   the same; the chart may have more than they
//	kubernetes settings CHART VALUES           the control plane's settings, as the rendered chart has them
//	kubernetes arguments CHART VALUES          the control plane's arguments, a line each
//
// CRDS is a folder with custom resource definitions. The exit code is 1 if there is an error, and 2 if the check could
// not run.
package main

import (
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	problems, err := run(os.Args[1:])
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		os.Exit(2)
	}
	for _, problem := range problems {
		fmt.Println(problem)
	}
	if len(problems) > 0 {
		os.Exit(1)
	}
}

func run(args []string) ([]string, error) {
	switch {
	case len(args) >= 3 && args[0] == "check":
		rules, err := readDefinitions(args[1])
		if err != nil {
			return nil, err
		}
		_, problems, err := checkFiles(rules, args[2:])
		return problems, err
	case len(args) == 3 && args[0] == "chart":
		rules, err := readDefinitions(args[1])
		if err != nil {
			return nil, err
		}
		return checkChart(rules, args[2])
	case len(args) >= 5 && (args[0] == "same" || args[0] == "has"):
		rules, err := readDefinitions(args[1])
		if err != nil {
			return nil, err
		}
		return compare(rules, args[2], args[3], args[4:], args[0] == "has")
	case len(args) == 3 && args[0] == "settings":
		return nil, printSettings(args[1], args[2])
	case len(args) == 3 && args[0] == "arguments":
		return nil, printArguments(args[1], args[2])
	default:
		return nil, fmt.Errorf("no such command; main.go lists them")
	}
}

func checkFiles(rules *definitions, paths []string) ([]object, []string, error) {
	var objects []object
	var problems []string
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, nil, err
		}
		found, wrong := checkText(rules, path, text)
		objects = append(objects, found...)
		problems = append(problems, wrong...)
	}
	return objects, problems, nil
}

func checkChart(rules *definitions, chart string) ([]string, error) {
	values, err := filepath.Glob(filepath.Join(chart, "ci", "*-values.yaml"))
	if err != nil {
		return nil, err
	}
	if len(values) == 0 {
		return nil, fmt.Errorf("%s/ci has no *-values.yaml to render it with", chart)
	}
	var problems []string
	for _, path := range values {
		problems = append(problems, lintChart(chart, path)...)
		text, err := render(chart, path)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", path, err))
			continue
		}
		_, wrong := checkText(rules, path, []byte(text))
		problems = append(problems, wrong...)
	}
	return problems, nil
}
