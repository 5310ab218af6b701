// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalledwatch

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Kind is a type of which an object can be made that makes no controller do anything.
type Kind struct {
	Resource schema.GroupVersionResource
	// Busy says that its object is to change all the time.
	Busy bool

	object unstructured.Unstructured
}

const objectName = "noticed"

// Kinds are those of the table.
func Kinds() ([]Kind, error) {
	var out []Kind
	for line := range strings.SplitSeq(strings.TrimSpace(table), "\n") {
		k, err := parse(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", line, err)
		}
		out = append(out, k)
	}
	return out, nil
}

func parse(line string) (k Kind, err error) {
	head, body, _ := strings.Cut(line, " {")
	words := strings.Fields(head)
	gv, err := schema.ParseGroupVersion(words[0])
	if err != nil {
		return k, err
	}
	k = Kind{Resource: gv.WithResource(words[1]), Busy: slices.Contains(words, "busy")}
	if err := json.Unmarshal([]byte("{"+body), &k.object.Object); err != nil {
		return k, err
	}
	k.object.SetGroupVersionKind(gv.WithKind(words[2]))
	k.object.SetName(objectName)
	if !slices.Contains(words, "cluster") {
		k.object.SetNamespace(metav1.NamespaceDefault)
	}
	return k, nil
}

// A line of the table has the resource, the kind, "cluster" if it is not namespaced, "busy" if it is to be, and what the object
// has besides a name.
const (
	template = `{"metadata":{"labels":{"app":"noticed"}},"spec":{"containers":[{"name":"main","image":"example.com/none"}]}}`
	selector = `{"matchLabels":{"app":"noticed"}}`
	table    = `
v1 configmaps ConfigMap busy {}
v1 secrets Secret busy {}
v1 serviceaccounts ServiceAccount busy {}
v1 limitranges LimitRange busy {"spec":{"limits":[]}}
v1 podtemplates PodTemplate busy {"template":` + template + `}
rbac.authorization.k8s.io/v1 roles Role busy {}
rbac.authorization.k8s.io/v1 rolebindings RoleBinding busy {"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"noticed"}}
scheduling.k8s.io/v1 priorityclasses PriorityClass cluster busy {"value":1}
networking.k8s.io/v1 networkpolicies NetworkPolicy busy {"spec":{"podSelector":{}}}
coordination.k8s.io/v1 leases Lease busy {}
v1 resourcequotas ResourceQuota {"spec":{"hard":{}}}
v1 replicationcontrollers ReplicationController {"spec":{"replicas":0,"selector":{"app":"noticed"},"template":` + template + `}}
v1 services Service {"spec":{"ports":[{"port":80}]}}
v1 namespaces Namespace cluster {}
v1 persistentvolumeclaims PersistentVolumeClaim {"spec":{"storageClassName":"none","accessModes":["ReadWriteOnce"],"resources":{"requests":{"storage":"1Gi"}}}}
apps/v1 deployments Deployment {"spec":{"replicas":0,"selector":` + selector + `,"template":` + template + `}}
apps/v1 replicasets ReplicaSet {"spec":{"replicas":0,"selector":` + selector + `,"template":` + template + `}}
apps/v1 statefulsets StatefulSet {"spec":{"replicas":0,"serviceName":"none","selector":` + selector + `,"template":` + template + `}}
apps/v1 controllerrevisions ControllerRevision {"revision":1,"data":{}}
batch/v1 cronjobs CronJob {"spec":{"suspend":true,"schedule":"0 0 1 1 *","jobTemplate":{"spec":{"template":{"spec":{"restartPolicy":"Never","containers":[{"name":"main","image":"example.com/none"}]}}}}}}
policy/v1 poddisruptionbudgets PodDisruptionBudget {"spec":{"minAvailable":0,"selector":` + selector + `}}
networking.k8s.io/v1 ingresses Ingress {"spec":{"defaultBackend":{"service":{"name":"none","port":{"number":80}}}}}
networking.k8s.io/v1 ingressclasses IngressClass cluster {"spec":{"controller":"example.com/none"}}
rbac.authorization.k8s.io/v1 clusterroles ClusterRole cluster {}
rbac.authorization.k8s.io/v1 clusterrolebindings ClusterRoleBinding cluster {"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"noticed"}}
storage.k8s.io/v1 storageclasses StorageClass cluster {"provisioner":"example.com/none"}
storage.k8s.io/v1 csidrivers CSIDriver cluster {"spec":{}}
node.k8s.io/v1 runtimeclasses RuntimeClass cluster {"handler":"none"}
admissionregistration.k8s.io/v1 validatingwebhookconfigurations ValidatingWebhookConfiguration cluster {}
admissionregistration.k8s.io/v1 mutatingwebhookconfigurations MutatingWebhookConfiguration cluster {}
`
)
