package main

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/kubernetes/pkg/api/legacyscheme"
	podwarnings "k8s.io/kubernetes/pkg/api/pod"
	servicewarnings "k8s.io/kubernetes/pkg/api/service"
	"k8s.io/kubernetes/pkg/apis/apps"
	_ "k8s.io/kubernetes/pkg/apis/apps/install"
	appsrules "k8s.io/kubernetes/pkg/apis/apps/validation"
	"k8s.io/kubernetes/pkg/apis/batch"
	_ "k8s.io/kubernetes/pkg/apis/batch/install"
	batchrules "k8s.io/kubernetes/pkg/apis/batch/validation"
	"k8s.io/kubernetes/pkg/apis/core"
	_ "k8s.io/kubernetes/pkg/apis/core/install"
	conversion "k8s.io/kubernetes/pkg/apis/core/v1"
	corerules "k8s.io/kubernetes/pkg/apis/core/validation"
	"k8s.io/kubernetes/pkg/apis/networking"
	_ "k8s.io/kubernetes/pkg/apis/networking/install"
	networkingrules "k8s.io/kubernetes/pkg/apis/networking/validation"
	"k8s.io/kubernetes/pkg/apis/policy"
	_ "k8s.io/kubernetes/pkg/apis/policy/install"
	policyrules "k8s.io/kubernetes/pkg/apis/policy/validation"
	podsecurity "k8s.io/pod-security-admission/api"
	checks "k8s.io/pod-security-admission/policy"
)

func isOfKubernetesItself(kind schema.GroupVersionKind) bool {
	return legacyscheme.Scheme.Recognizes(kind)
}

// createBuiltIn does what the API server does with an object of a built-in kind: unknown and repeated members,
// defaults, validation, warnings. Pods must also meet the strictest of the Pod Security Standards, which their
// namespace enforces.
func createBuiltIn(json []byte) (runtime.Object, []string) {
	codecs := serializer.NewCodecFactory(legacyscheme.Scheme, serializer.EnableStrict)
	decoded, _, err := codecs.UniversalDeserializer().Decode(json, nil, nil)
	if err != nil {
		return nil, []string{err.Error()}
	}
	legacyscheme.Scheme.Default(decoded)
	stored, err := legacyscheme.Scheme.UnsafeConvertToVersion(decoded, runtime.InternalGroupVersioner)
	if err != nil {
		return nil, []string{err.Error()}
	}
	// Validates a copy, which gets the fields that the API server adds.
	return stored, judge(stored.DeepCopyObject())
}

func judge(stored runtime.Object) []string {
	switch object := stored.(type) {
	case *apps.StatefulSet:
		template := &object.Spec.Template
		found := appsrules.ValidateStatefulSet(object, podwarnings.GetValidationOptionsFromPodTemplate(template, nil))
		return append(texts(found), judgePods(template)...)
	case *batch.Job:
		template := &object.Spec.Template
		generateSelector(object)
		options := batchrules.JobValidationOptions{
			PodValidationOptions:  podwarnings.GetValidationOptionsFromPodTemplate(template, nil),
			RequirePrefixedLabels: true,
		}
		return append(texts(batchrules.ValidateJob(object, options)), judgePods(template)...)
	case *core.ConfigMap:
		return texts(corerules.ValidateConfigMap(object))
	case *core.Namespace:
		return texts(corerules.ValidateNamespace(object))
	case *core.PersistentVolumeClaim:
		return texts(corerules.ValidatePersistentVolumeClaim(object, corerules.ValidationOptionsForPersistentVolumeClaimCreate()))
	case *core.Service:
		warnings := servicewarnings.GetWarningsForService(object, nil)
		return append(texts(corerules.ValidateServiceCreate(object)), warnings...)
	case *core.ServiceAccount:
		return texts(corerules.ValidateServiceAccount(object))
	case *networking.NetworkPolicy:
		return texts(networkingrules.ValidateNetworkPolicy(object, networkingrules.NetworkPolicyValidationOptions{}))
	case *policy.PodDisruptionBudget:
		return texts(policyrules.ValidatePodDisruptionBudget(object, policyrules.PodDisruptionBudgetValidationOptions{}))
	default:
		return []string{fmt.Sprintf("there is no validation for %T; add it to builtin.go", stored)}
	}
}

// generateSelector makes the labels by which a Job finds its pods.
func generateSelector(job *batch.Job) {
	job.UID = "00000000-0000-0000-0000-000000000000"
	if job.Spec.Template.Labels == nil {
		job.Spec.Template.Labels = map[string]string{}
	}
	for _, label := range []string{batch.LegacyControllerUidLabel, batch.ControllerUidLabel} {
		job.Spec.Template.Labels[label] = string(job.UID)
	}
	for _, label := range []string{batch.LegacyJobNameLabel, batch.JobNameLabel} {
		job.Spec.Template.Labels[label] = job.Name
	}
	job.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{batch.ControllerUidLabel: string(job.UID)}}
}

func judgePods(template *core.PodTemplateSpec) []string {
	problems := podwarnings.GetWarningsForPodTemplate(context.Background(), field.NewPath("spec", "template"), template, nil)
	var pod corev1.PodTemplateSpec
	if err := conversion.Convert_core_PodTemplateSpec_To_v1_PodTemplateSpec(template, &pod, nil); err != nil {
		return append(problems, err.Error())
	}
	evaluator, err := checks.NewEvaluator(checks.DefaultChecks(), nil)
	if err != nil {
		return append(problems, err.Error())
	}
	restricted := podsecurity.LevelVersion{Level: podsecurity.LevelRestricted, Version: podsecurity.LatestVersion()}
	result := checks.AggregateCheckResults(evaluator.EvaluatePod(restricted, &pod.ObjectMeta, &pod.Spec))
	if !result.Allowed {
		problems = append(problems, "Pod Security Standard restricted: "+result.ForbiddenDetail())
	}
	return problems
}
