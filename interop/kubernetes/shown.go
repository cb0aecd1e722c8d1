package main

import (
	"fmt"

	"k8s.io/kubernetes/pkg/apis/apps"
	"k8s.io/kubernetes/pkg/apis/core"
)

func printSettings(chart, values string) error {
	settings, err := renderedObject[*core.ConfigMap](chart, values)
	if err == nil {
		fmt.Print(settings.Data["credence.yaml"])
	}
	return err
}

func printArguments(chart, values string) error {
	set, err := renderedObject[*apps.StatefulSet](chart, values)
	if err == nil {
		for _, argument := range set.Spec.Template.Spec.Containers[0].Args {
			fmt.Println(argument)
		}
	}
	return err
}

// renderedObject is the only object of this kind in the rendered chart.
func renderedObject[Kind any](chart, values string) (Kind, error) {
	var wanted Kind
	text, err := render(chart, values)
	if err != nil {
		return wanted, err
	}
	// Custom resources are not needed here, so no definitions are.
	objects, _ := checkText(&definitions{}, values, []byte(text))
	for _, object := range objects {
		if found, is := object.stored.(Kind); is {
			return found, nil
		}
	}
	return wanted, fmt.Errorf("with %s the chart has no %T", values, wanted)
}
