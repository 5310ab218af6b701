// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package stalledwatch

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"

	"github.com/fresh-kcm/fresh-kcm/test/faultrig"
)

// busyEvery is how far the changes of a busy object are apart.
const busyEvery = 300 * time.Millisecond

// Objects are one of each kind. They live as long as the cluster.
type Objects struct {
	client dynamic.Interface
	kinds  []Kind
}

// Make makes those that are not there.
func Make(ctx context.Context, config *rest.Config, kinds []Kind) (*Objects, error) {
	config = rest.CopyConfig(config)
	config.QPS = -1
	client, err := dynamic.NewForConfig(config)
	if err != nil {
		return nil, err
	}
	o := &Objects{client: client, kinds: kinds}
	for _, k := range kinds {
		if _, err := o.in(k).Create(ctx, &k.object, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("making an object of %s: %w", k.Resource.GroupResource(), err)
		}
	}
	return o, nil
}

func (o *Objects) in(k Kind) dynamic.ResourceInterface {
	if namespace := k.object.GetNamespace(); namespace != "" {
		return o.client.Resource(k.Resource).Namespace(namespace)
	}
	return o.client.Resource(k.Resource)
}

// Touch changes the object of a kind so that nobody minds.
func (o *Objects) Touch(ctx context.Context, k Kind, value string) error {
	_, err := o.in(k).Patch(ctx, objectName, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/touched":%q}}}`, value), metav1.PatchOptions{})
	return err
}

// KeepBusy changes the objects that are to be busy until it is stopped.
func (o *Objects) KeepBusy(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	for _, k := range o.kinds {
		if k.Busy {
			wg.Go(func() {
				for i := 0; faultrig.Sleep(ctx, busyEvery) == nil; i++ {
					_ = o.Touch(ctx, k, fmt.Sprint(i))
				}
			})
		}
	}
	return func() { cancel(); wg.Wait() }
}
