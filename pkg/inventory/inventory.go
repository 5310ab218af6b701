// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
)

// Mode is what stands between a write and a stale cache.
type Mode string

const (
	// View: the write waits until the caches that it was decided on have the controller's own writes, or are proven fresh.
	View Mode = "view"
	// Bounded: as View, but for a limited time. After that the controller goes on as upstream does.
	Bounded Mode = "bounded"
	// InCode: the request carries the UID or the resource version of what it was decided on, or a live read precedes it.
	InCode Mode = "in code"
	// Exempt: on a stale cache the write is repeated, refused or late, and harms nothing.
	Exempt Mode = "exempt"
	// Open: the write may do harm on a stale cache, as it may on stock upstream.
	Open Mode = "open"
)

// order is from the mode that protects least.
var order = []Mode{Open, Bounded, View, InCode, Exempt}

// Precondition is what a deletion may carry of the object that it is for: the apiserver refuses it for another.
type Precondition string

const (
	UID             Precondition = "UID"
	ResourceVersion Precondition = "resource version"
)

// Rule says what keeps some writes of a controller from doing harm.
type Rule struct {
	// Verbs and Resources are what the rule is for, in words of the API that are parted by spaces: "update patch", and
	// "daemonsets.apps/status pods". A resource may be *, or begin with */.
	Verbs, Resources string
	Mode             Mode
	// Why is what protects the writes or makes them harmless, or the harm that they may do.
	Why string
	// Scenarios are the numbers of those that show it on a real control plane.
	Scenarios []int
	// Tests are the names of those that show what no scenario does.
	Tests []string
	// Preconditions are those that every deletion of the rule carries while its controller is not exempt. The transport sends
	// none without, so only what the code never leaves out may be here.
	Preconditions []Precondition
}

// Controller is a controller of kube-controller-manager with all that it may write.
type Controller struct {
	// Name is as --controllers has it.
	Name string
	// Client is the name of the controller's client, and of its service account. Some controllers share one.
	Client string
	Rules  []Rule
}

// Mode is that of the rule which protects least.
func (c Controller) Mode() Mode {
	for _, mode := range order {
		for _, rule := range c.Rules {
			if rule.Mode == mode {
				return mode
			}
		}
	}
	return Exempt
}

// Controllers returns all controllers of kube-controller-manager, not to be changed.
func Controllers() []Controller { return controllers }

// Process is the name of the process itself, and of its clients that are no controller's.
const Process = "kube-controller-manager"

// Itself is the process itself with all that it may write, not to be changed.
func Itself() Controller { return itself }

var itself = Controller{Name: Process, Client: Process, Rules: []Rule{
	{Verbs: "create update", Resources: "leases.coordination.k8s.io", Mode: InCode, Why: "The lock of leader election is read live before. A second one of the name is refused. " + refused},
	{Verbs: "create", Resources: "serviceaccounts serviceaccounts/token", Mode: InCode,
		Why: "With --use-service-account-credentials, the account of a controller is read live before it is made, and its token is asked for by that."},
	{Verbs: "create", Resources: "subjectaccessreviews.authorization.k8s.io tokenreviews.authentication.k8s.io", Mode: Exempt,
		Why: "They ask whether a client of the process's own endpoints may do what it asks for, and change nothing."},
	events,
}}

// events may be written by every controller. They say what happened, and nothing acts on them.
var events = Rule{Verbs: "create update patch", Resources: "events events.events.k8s.io", Mode: Exempt, Why: "Nothing acts on events."}

// Lists reports whether there is a rule for a write by the named client, or for one of events, which all clients make. The subresource may be empty.
func Lists(client, verb string, resource schema.GroupResource, subresource string) bool {
	name := resource.String()
	if subresource != "" {
		name += "/" + subresource
	}
	for _, c := range byClient[client] {
		for i := range c.Rules {
			if c.Rules[i].covers(verb, name) {
				return true
			}
		}
	}
	return events.covers(verb, name)
}

// Promises returns the preconditions that the named client's deletion of an object of the resource carries: those of one of the rules for it.
// It returns nil if one of them promises nothing, as do all rules of a controller that is exempt, and if there is none.
func Promises(client string, resource schema.GroupResource, exempt sets.Set[string]) [][]Precondition {
	var out [][]Precondition
	for _, c := range byClient[client] {
		for _, rule := range c.Rules {
			if !rule.covers("delete", resource.String()) {
				continue
			}
			if len(rule.Preconditions) == 0 || exempt.Has(c.Name) {
				return nil
			}
			out = append(out, rule.Preconditions)
		}
	}
	return out
}

// Promising returns the clients of those controllers that promise preconditions of deletions, without those that are exempt.
func Promising(exempt sets.Set[string]) []string {
	out := sets.New[string]()
	for _, c := range controllers {
		if !exempt.Has(c.Name) && slices.ContainsFunc(c.Rules, func(r Rule) bool { return len(r.Preconditions) > 0 }) {
			out.Insert(c.Client)
		}
	}
	return sets.List(out)
}

// byClient are the controllers with one client.
var byClient = func() map[string][]Controller {
	out := map[string][]Controller{}
	for _, c := range append(slices.Clone(controllers), itself) {
		out[c.Client] = append(out[c.Client], c)
	}
	return out
}()

func (r Rule) covers(verb, resource string) bool {
	return has(r.Verbs, verb) && has(r.Resources, resource)
}

// has reports whether one of the words is this one, or a pattern of it.
func has(words, word string) bool {
	for known := range strings.FieldsSeq(words) {
		if known == word || known == "*" {
			return true
		}
		if suffix, ok := strings.CutPrefix(known, "*"); ok && strings.HasSuffix(word, suffix) {
			return true
		}
	}
	return false
}
