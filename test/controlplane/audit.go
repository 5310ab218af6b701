// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package controlplane

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// auditPolicy leaves out kwok, which stands for the nodes and would be most of the log, and the stage
// that says no more than that a request came in.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: ["RequestReceived"]
omitManagedFields: true
rules:
- level: None
  users: ["` + kwokUser + `", "system:apiserver"]
- level: None
  nonResourceURLs: ["*"]
- level: Metadata
`

// AuditEvent is what a test asks of one line of the audit log.
type AuditEvent struct {
	// Stage is ResponseComplete, once for every request, and for a watch ResponseStarted before it.
	Stage string `json:"stage"`
	Verb  string `json:"verb"`
	User  struct {
		Username string `json:"username"`
	} `json:"user"`
	UserAgent string `json:"userAgent"`
	// RequestURI carries the query: resourceVersion, limit, dryRun.
	RequestURI string `json:"requestURI"`
	ObjectRef  struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
		Namespace   string `json:"namespace"`
		Name        string `json:"name"`
		APIGroup    string `json:"apiGroup"`
	} `json:"objectRef"`
	ResponseStatus struct {
		Code int `json:"code"`
	} `json:"responseStatus"`
	// RequestReceivedTimestamp is when the apiserver began on the request.
	RequestReceivedTimestamp time.Time `json:"requestReceivedTimestamp"`
	StageTimestamp           time.Time `json:"stageTimestamp"`
}

// ServiceAccount returns the name of the service account in kube-system that made the request, such as
// "node-controller", or nothing.
func (e *AuditEvent) ServiceAccount() string {
	name, ok := strings.CutPrefix(e.User.Username, "system:serviceaccount:kube-system:")
	if !ok {
		return ""
	}
	return name
}

// ReadAudit calls visit for each event of an audit log in order, beginning at a byte offset, and
// returns the offset to go on from later. A last line that is still being written is left for then. It fails for a log that is
// shorter than that: it is another one, and events were lost.
func ReadAudit(path string, offset int64, visit func(AuditEvent)) (int64, error) {
	f, err := os.Open(path)
	if err != nil {
		return offset, fmt.Errorf("reading the audit log: %w", err)
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil {
		return offset, fmt.Errorf("reading the audit log: %w", err)
	} else if info.Size() < offset {
		return offset, fmt.Errorf("audit log %s has %d bytes, and %d of it were read: it was put aside or cut", path, info.Size(), offset)
	}
	if _, err := f.Seek(offset, io.SeekStart); err != nil {
		return offset, fmt.Errorf("reading the audit log: %w", err)
	}
	r := bufio.NewReaderSize(f, 256<<10)
	for {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return offset, nil
		}
		if err != nil {
			return offset, fmt.Errorf("reading the audit log: %w", err)
		}
		var event AuditEvent
		if err := json.Unmarshal(line, &event); err != nil {
			return offset, fmt.Errorf("audit log %s at byte %d: %w", path, offset, err)
		}
		offset += int64(len(line))
		visit(event)
	}
}

func (c *Cluster) auditPolicyPath() string { return filepath.Join(c.dir, "data", "audit-policy.yaml") }
