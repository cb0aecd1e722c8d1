// A stand-in for a cluster, for kubectl and helm: it stores applied objects of the kinds of envoy-config, reports every Job
// as complete and every StatefulSet as ready, and has a pod with a log for each. It validates nothing: interop/kubernetes
// does.
//
//	cluster KUBECONFIG NAMESPACE...
//
// It writes the kubeconfig file for its clients, and serves until it is stopped.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"

	"k8s.io/client-go/kubernetes/scheme"
)

func main() {
	if len(os.Args) < 2 {
		log.Fatal("usage: cluster KUBECONFIG NAMESPACE...")
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	it := &cluster{objects: map[string]object{}}
	for _, name := range os.Args[2:] {
		namespace := object{"apiVersion": "v1", "kind": "Namespace", "metadata": object{"name": name}}
		it.objects["/api/v1/namespaces/"+name] = namespace
	}
	settings := fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "it",
		"clusters": [{"name": "it", "cluster": {"server": "http://%s"}}],
		"contexts": [{"name": "it", "context": {"cluster": "it", "user": "it"}}], "users": [{"name": "it", "user": {}}]}`,
		listener.Addr())
	if err := os.WriteFile(os.Args[1], []byte(settings), 0o600); err != nil {
		log.Fatal(err)
	}
	log.Fatal(http.Serve(listener, it))
}

type object = map[string]any

type cluster struct {
	sync.Mutex
	// By API path.
	objects  map[string]object
	revision int
}

// A resource kind: resource, kind, and whether it is in a namespace.
type kind struct {
	resource, name string
	namespaced     bool
}

var groups = map[string][]kind{
	"v1": {{"namespaces", "Namespace", false}, {"secrets", "Secret", true}, {"configmaps", "ConfigMap", true},
		{"services", "Service", true}, {"serviceaccounts", "ServiceAccount", true}, {"pods", "Pod", true},
		{"persistentvolumeclaims", "PersistentVolumeClaim", true}},
	"apps/v1":                  {{"statefulsets", "StatefulSet", true}},
	"batch/v1":                 {{"jobs", "Job", true}},
	"policy/v1":                {{"poddisruptionbudgets", "PodDisruptionBudget", true}},
	"networking.k8s.io/v1":     {{"networkpolicies", "NetworkPolicy", true}},
	"monitoring.coreos.com/v1": {{"servicemonitors", "ServiceMonitor", true}, {"podmonitors", "PodMonitor", true}},
	"networking.istio.io/v1": {{"destinationrules", "DestinationRule", true}, {"serviceentries", "ServiceEntry", true},
		{"sidecars", "Sidecar", true}, {"workloadentries", "WorkloadEntry", true}},
	"networking.istio.io/v1alpha3": {{"envoyfilters", "EnvoyFilter", true}},
	"extensions.istio.io/v1alpha1": {{"wasmplugins", "WasmPlugin", true}},
	"security.istio.io/v1": {{"peerauthentications", "PeerAuthentication", true},
		{"authorizationpolicies", "AuthorizationPolicy", true}},
	"telemetry.istio.io/v1": {{"telemetries", "Telemetry", true}},
	"gateway.networking.k8s.io/v1": {{"gateways", "Gateway", true}, {"gatewayclasses", "GatewayClass", false},
		{"httproutes", "HTTPRoute", true}},
	"gateway.envoyproxy.io/v1alpha1": {{"envoyextensionpolicies", "EnvoyExtensionPolicy", true},
		{"envoypatchpolicies", "EnvoyPatchPolicy", true}, {"envoyproxies", "EnvoyProxy", true},
		{"clienttrafficpolicies", "ClientTrafficPolicy", true}, {"backends", "Backend", true}},
}

func (it *cluster) ServeHTTP(writer http.ResponseWriter, request *http.Request) {
	answer, status := it.discovered(request.URL.Path), http.StatusOK
	if strings.HasSuffix(request.URL.Path, "/log") {
		fmt.Fprintln(writer, "log_id: 0123456789abcdef0123456789abcdef")
		return
	}
	if answer == nil && request.URL.Query().Get("watch") != "" {
		if request.URL.Query().Get("sendInitialEvents") != "" {
			answer, status = failure("Invalid", "a watch must follow a list", http.StatusUnprocessableEntity)
		} else {
			// The client has listed all objects, and nothing changes.
			writer.WriteHeader(http.StatusOK)
			writer.(http.Flusher).Flush()
			<-request.Context().Done()
			return
		}
	}
	if answer == nil {
		it.Lock()
		answer, status = it.answer(request)
		it.Unlock()
	}
	writer.Header().Set("Content-Type", "application/json")
	writer.WriteHeader(status)
	_ = json.NewEncoder(writer).Encode(answer)
}

// The first requests of clients: the kinds, and that the server validates every field.
func (it *cluster) discovered(path string) object {
	switch path {
	case "/version":
		return object{"major": "1", "minor": "36", "gitVersion": "v1.36.0"}
	case "/api":
		return object{"kind": "APIVersions", "versions": []string{"v1"}}
	case "/apis":
		var list []object
		for name := range groups {
			// Each once, with its first version.
			if group, _, found := strings.Cut(name, "/"); found && versions(group)[0]["groupVersion"] == name {
				list = append(list, object{"name": group, "versions": versions(group), "preferredVersion": versions(group)[0]})
			}
		}
		return object{"kind": "APIGroupList", "apiVersion": "v1", "groups": list}
	case "/openapi/v3":
		paths := object{}
		for name := range groups {
			paths[root(name)[1:]] = object{"serverRelativeURL": "/openapi/v3" + root(name)}
		}
		return object{"paths": paths}
	}
	for name, kinds := range groups {
		switch path {
		case root(name):
			var resources []object
			for _, kind := range kinds {
				resources = append(resources, object{"name": kind.resource, "singularName": strings.ToLower(kind.name),
					"kind": kind.name, "namespaced": kind.namespaced,
					"verbs": []string{"create", "delete", "get", "list", "patch", "update", "watch"}})
			}
			return object{"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}
		case "/openapi/v3" + root(name):
			return described(name, kinds)
		}
	}
	return nil
}

func versions(group string) []object {
	var all []object
	for name := range groups {
		if other, version, _ := strings.Cut(name, "/"); other == group {
			all = append(all, object{"groupVersion": name, "version": version})
		}
	}
	slices.SortFunc(all, func(a, b object) int { return strings.Compare(text(a, "version"), text(b, "version")) })
	return all
}

// Says for each kind that a patch supports fieldValidation, so that kubectl leaves the validation to the server.
func described(name string, kinds []kind) object {
	group, version, found := strings.Cut(name, "/")
	if !found {
		group, version = "", name
	}
	paths := object{}
	for _, kind := range kinds {
		paths[root(name)+"/"+kind.resource+"/{name}"] = object{"patch": object{
			"parameters":                      []object{{"name": "fieldValidation", "in": "query"}},
			"x-kubernetes-group-version-kind": object{"group": group, "version": version, "kind": kind.name},
		}}
	}
	return object{"openapi": "3.0.0", "info": object{"title": "it", "version": "1"}, "paths": paths}
}

func root(name string) string {
	if strings.Contains(name, "/") {
		return "/apis/" + name
	}
	return "/api/" + name
}

func (it *cluster) answer(request *http.Request) (object, int) {
	path := request.URL.Path
	var body object
	if request.Method != http.MethodGet && request.Method != http.MethodDelete {
		var err error
		if body, err = read(request); err != nil {
			return failure("BadRequest", err.Error(), http.StatusBadRequest)
		}
	}
	kept, found := it.objects[path]
	switch request.Method {
	case http.MethodGet:
		if found {
			return kept, http.StatusOK
		}
		if list := it.list(request); list != nil {
			return list, http.StatusOK
		}
	case http.MethodDelete:
		if found {
			delete(it.objects, path)
			return kept, http.StatusOK
		}
	case http.MethodPost:
		path += "/" + text(body, "metadata", "name")
		if _, found := it.objects[path]; found {
			return failure("AlreadyExists", path+" is there already", http.StatusConflict)
		}
		return it.keep(path, body)
	case http.MethodPut:
		return it.keep(path, body)
	case http.MethodPatch:
		if found || strings.Contains(request.Header.Get("Content-Type"), "apply-patch") {
			return it.keep(path, merged(kept, body))
		}
	}
	return failure("NotFound", path+" is not there", http.StatusNotFound)
}

// Clients send types that they know as protobuf.
func read(request *http.Request) (object, error) {
	var body object
	bytes, err := io.ReadAll(request.Body)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(request.Header.Get("Content-Type"), "protobuf") {
		return body, json.Unmarshal(bytes, &body)
	}
	typed, kind, err := scheme.Codecs.UniversalDeserializer().Decode(bytes, nil, nil)
	if err != nil {
		return nil, err
	}
	typed.GetObjectKind().SetGroupVersionKind(*kind)
	if bytes, err = json.Marshal(typed); err != nil {
		return nil, err
	}
	return body, json.Unmarshal(bytes, &body)
}

// A namespace must exist before its objects.
func (it *cluster) keep(path string, body object) (object, int) {
	if _, rest, found := strings.Cut(path, "/namespaces/"); found {
		namespace, inside, _ := strings.Cut(rest, "/")
		if _, found := it.objects["/api/v1/namespaces/"+namespace]; !found && inside != "" {
			return failure("NotFound", "namespace "+namespace+" is not there", http.StatusNotFound)
		}
		if inside != "" {
			body = merged(body, object{"metadata": object{"namespace": namespace}})
		}
	}
	it.revision++
	body = merged(body, object{"metadata": object{"resourceVersion": fmt.Sprint(it.revision), "uid": path, "generation": 1}})
	name := text(body, "metadata", "name")
	switch text(body, "kind") {
	case "Job":
		labels := object{"job-name": name}
		body = merged(body, object{"spec": object{"selector": object{"matchLabels": labels}},
			"status": object{"conditions": []object{{"type": "Complete", "status": "True"}}, "succeeded": 1}})
		it.addPod(strings.Replace(path, "/apis/batch/v1", "/api/v1", 1), body, labels, "first-start", "Succeeded")
	case "StatefulSet":
		body = merged(body, object{"spec": object{"updateStrategy": object{"type": "RollingUpdate"}},
			"status": object{"observedGeneration": 1, "replicas": 1, "readyReplicas": 1, "updatedReplicas": 1,
				"currentReplicas": 1, "currentRevision": "1", "updateRevision": "1"}})
		it.addPod(strings.Replace(path, "/apis/apps/v1", "/api/v1", 1), body, object{}, "control-plane", "Running")
	}
	it.objects[path] = body
	return body, http.StatusOK
}

// addPod adds the first pod of a Job or StatefulSet, with one container.
func (it *cluster) addPod(path string, owner object, labels object, container, phase string) {
	name := text(owner, "metadata", "name") + "-0"
	namespace := text(owner, "metadata", "namespace")
	folder, _, _ := strings.Cut(path, "/namespaces/")
	it.objects[folder+"/namespaces/"+namespace+"/pods/"+name] = object{"apiVersion": "v1", "kind": "Pod",
		"metadata": object{"name": name, "namespace": namespace, "labels": labels},
		"spec":     object{"containers": []object{{"name": container}}}, "status": object{"phase": phase}}
}

// Of a kind, in a namespace or all, by labels and name; nil if no such kind is known.
func (it *cluster) list(request *http.Request) object {
	for name, kinds := range groups {
		for _, kind := range kinds {
			if !strings.HasPrefix(request.URL.Path, root(name)+"/") || !strings.HasSuffix(request.URL.Path, "/"+kind.resource) {
				continue
			}
			items := []object{}
			for path, item := range it.objects {
				if strings.HasPrefix(path, request.URL.Path+"/") && !strings.Contains(path[len(request.URL.Path)+1:], "/") &&
					is(request.URL.Query().Get("labelSelector"), func(label string) string {
						return text(item, "metadata", "labels", label)
					}) && is(request.URL.Query().Get("fieldSelector"), func(field string) string {
					return text(item, strings.Split(field, ".")...)
				}) {
					items = append(items, item)
				}
			}
			return object{"apiVersion": name, "kind": kind.name + "List", "items": items,
				"metadata": object{"resourceVersion": fmt.Sprint(it.revision)}}
		}
	}
	return nil
}

// Whether all names in a selector have the stated value.
func is(selector string, value func(string) string) bool {
	for _, requirement := range strings.Split(selector, ",") {
		name, expected, found := strings.Cut(requirement, "=")
		if found && value(name) != strings.TrimPrefix(expected, "=") {
			return false
		}
	}
	return true
}

// RFC 7396.
func merged(into, patch object) object {
	result := object{}
	for name, value := range into {
		result[name] = value
	}
	for name, value := range patch {
		inner, isObject := value.(object)
		old, _ := result[name].(object)
		switch {
		case value == nil:
			delete(result, name)
		case isObject:
			result[name] = merged(old, inner)
		default:
			result[name] = value
		}
	}
	return result
}

func text(of object, path ...string) string {
	for _, name := range path[:len(path)-1] {
		of, _ = of[name].(object)
	}
	found, _ := of[path[len(path)-1]].(string)
	return found
}

func failure(reason, message string, code int) (object, int) {
	return object{"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": reason, "message": message,
		"code": code}, code
}
