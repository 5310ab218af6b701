// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package faultproxy

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
)

// cutAnswer has an answer end in the middle, if it is longer than the fault says.
func (f *Fault) cutAnswer(res *http.Response, req Request) error {
	after := f.b.after
	head, err := io.ReadAll(io.LimitReader(res.Body, int64(after)+1))
	if err != nil {
		return err
	}
	if len(head) <= after || !f.take() {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.MultiReader(bytes.NewReader(head), res.Body), res.Body}
		return nil
	}
	f.didRequest(ActionDropped, req)
	_ = res.Body.Close()
	res.Body = io.NopCloser(bytes.NewReader(head[:after]))
	switch {
	case f.b.whole:
		res.Header.Del("Content-Length")
		res.ContentLength = -1
	case res.ContentLength < 0:
		// The client sees that it has not all, and need not see how much it lacks.
		res.ContentLength = int64(len(head))
		res.Header.Set("Content-Length", strconv.Itoa(len(head)))
	}
	return nil
}
