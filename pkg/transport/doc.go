// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package transport is what stands between the controllers' clients and the server.
//
// It promises:
//
//   - Every write that a reconcile makes is recorded in its owner's Store before the controller sees the answer,
//     whatever helper makes it. A write whose answer was lost is recorded as unsettled; one that cannot be read is counted.
//   - Once the leader lease has run out, no write is sent, except of events (NotLeaderError).
//   - A write for which package inventory has no rule is counted.
//   - A deletion that lacks the precondition which all rules for it promise is not sent (PreconditionError).
//   - Watches that are stalled can be ended, so that their informers open new ones, or relist.
//
// Which controllers and clients those are is for package wiring to say.
package transport
