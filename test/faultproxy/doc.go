// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package faultproxy stands between one client and one kube-apiserver, and spoils the watch streams of
// single resources while both sides run unchanged.
//
// What it promises:
//
//   - A fault acts on one resource. No other stream is slowed, not even one on the same HTTP/2 connection:
//     each watch has its own queue here, and towards the backend its own small flow-control window inside
//     a connection window that all watches together cannot fill.
//   - Without a fault the proxy is transparent: frames are passed on as they come, byte for byte and in
//     order, the client's own back-pressure reaches the backend, and other requests stream through.
//   - Order within a stream is kept whatever faults come and go, except by [ReorderEvents], and the backend's closing of a stream
//     keeps its place behind the frames that came before it.
//   - Every intervention can be proven: [Fault.Stats] says what a fault touched, [Proxy.Journal] lists the
//     last interventions, and [Proxy.Progress] says how far the backend and the client are.
//   - Identity is kept. A request with an Authorization header is forwarded with that header and without a
//     client certificate; one that arrived on the client's certificate is forwarded on the same identity's
//     certificate; any other is forwarded anonymously. Headers and tokens are never logged.
//   - After [Proxy.Close] nothing is left: no goroutine, no connection, no listener.
//
// Effects that act together on one resource compose: filters ([DropEvents], [SuppressBookmarks]), then
// [OpaqueRVs], and then [DoubleEvents] and [ReorderEvents], of which one acts on an event, see a frame when it arrives, [Hold], [Delay] and [StopReading] decide when it leaves, and [DropStream] and [Gone] end
// the stream whatever is still waiting in it. A frame that was already being written to the client when a
// fault is injected may still arrive.
//
// The proxy listens on loopback only. It cannot serve HTTP upgrades (exec, attach, port-forward, watches
// over websocket), which kube-controller-manager does not use.
package faultproxy
