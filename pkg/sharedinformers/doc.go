// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharedinformers wraps the informers that controllers share. It knows which of them are in use and the position of each of
// their event handlers, and lets controllers start only once the caches that they read are proven as new as the start of
// leadership. All of it is safe for concurrent use.
package sharedinformers
