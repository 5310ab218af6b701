// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package oracle

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/fresh-kcm/fresh-kcm/test/controlplane"
)

// Service accounts of the controllers, as the audit log names them.
const (
	DaemonSetController = "daemon-set-controller"
	NodeController      = "node-controller"
)

var writing = []string{"create", "update", "patch", "delete", "deletecollection"}

// Writes reads the controllers' writes from the apiservers' audit logs, refused ones too, in the order in
// which they were answered.
func Writes(servers ...*controlplane.APIServer) ([]controlplane.AuditEvent, error) {
	var out []controlplane.AuditEvent
	for _, server := range servers {
		_, err := controlplane.ReadAudit(server.AuditLogPath(), 0, func(e controlplane.AuditEvent) {
			if e.Stage == "ResponseComplete" && slices.Contains(writing, e.Verb) {
				out = append(out, e)
			}
		})
		if err != nil {
			return nil, fmt.Errorf("writes: %w", err)
		}
	}
	slices.SortStableFunc(out, func(a, b controlplane.AuditEvent) int {
		return cmp.Or(a.StageTimestamp.Compare(b.StageTimestamp), cmp.Compare(a.UserAgent, b.UserAgent))
	})
	return out, nil
}

func object(e *controlplane.AuditEvent) string { return e.ObjectRef.Namespace + "/" + e.ObjectRef.Name }

func succeeded(e *controlplane.AuditEvent) bool {
	return e.ResponseStatus.Code >= 200 && e.ResponseStatus.Code < 300
}
