// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

// Package sharedinformers wraps the informers that controllers share. It knows which of them somebody uses, how far each of
// their event handlers is, and lets controllers start only once the caches that they read are proven as new as the start of
// leadership. All of it is safe for concurrent use.
package sharedinformers
