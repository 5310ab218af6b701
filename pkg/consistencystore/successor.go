// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package consistencystore

import (
	"fmt"
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/fresh-kcm/fresh-kcm/pkg/rvtracker"
	"github.com/fresh-kcm/fresh-kcm/pkg/transport"
)

// successorError says that an update was not sent for an owner that was deleted, because it would change the one that was made again under its name.
type successorError struct {
	owner          types.NamespacedName
	resource       schema.GroupResource
	uid, successor types.UID
}

func (e *successorError) Error() string {
	return fmt.Sprintf("%s %s with UID %s was deleted, and the one that was made again under its name, with UID %s, is not in the cache yet: it must not get the status of the other", e.resource, e.owner, e.uid, e.successor)
}

// Parked implements what consistency.Parked asks for.
func (e *successorError) Parked() bool { return true }

// checkSuccessor returns an error if an update would change another object than the owner: the one that was made again under its name. When the server refuses the status that they
// write, some controllers of upstream get the object of that name, and write the status to it, whichever it is. For the owner it is then as if it had been written: it waits until the
// cache shows the successor, and nothing tries it again.
func (s *Store) checkSuccessor(owner types.NamespacedName, ownerUID types.UID, what transport.Write, sent func() metav1.ObjectMeta) error {
	own, known := s.ownResource()
	if what.Method != http.MethodPut || !known || what.Resource != own || ownerUID == "" {
		return nil
	}
	object := sent()
	if object.Name != owner.Name || object.UID == "" || object.UID == ownerUID {
		return nil
	}
	s.Wrote(owner, ownerUID, own, object, rvtracker.Sent{})
	s.refusals.done(owner, what)
	s.forgetStatus(owner)
	return &successorError{owner, own, ownerUID, object.UID}
}
