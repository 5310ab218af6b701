// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package cache

// BookmarkHandler is optionally implemented by a (typed) event handler that
// may ask for bookmarks. One that wraps another returns the other's function.
type BookmarkHandler interface {
	// GetBookmarkFunc returns what ResourceEventHandlerFuncs.BookmarkFunc
	// describes, or nil to decline. It may be called just once, when the
	// handler is added.
	GetBookmarkFunc() func(resourceVersion string)
}

// bookmarkFuncOf returns nil if handler does not ask for bookmarks.
func bookmarkFuncOf(handler any) func(resourceVersion string) {
	if h, ok := handler.(BookmarkHandler); ok {
		return h.GetBookmarkFunc()
	}
	return nil
}

// GetBookmarkFunc returns BookmarkFunc.
func (r ResourceEventHandlerFuncs) GetBookmarkFunc() func(resourceVersion string) {
	return r.BookmarkFunc
}

// GetBookmarkFunc returns BookmarkFunc.
func (r TypedResourceEventHandlerFuncs[T]) GetBookmarkFunc() func(resourceVersion string) {
	return r.BookmarkFunc
}

// GetBookmarkFunc returns BookmarkFunc.
func (r ResourceEventHandlerDetailedFuncs) GetBookmarkFunc() func(resourceVersion string) {
	return r.BookmarkFunc
}

// GetBookmarkFunc returns BookmarkFunc.
func (r TypedResourceEventHandlerDetailedFuncs[T]) GetBookmarkFunc() func(resourceVersion string) {
	return r.BookmarkFunc
}

// GetBookmarkFunc returns the nested handler's function: bookmarks pass any filter.
func (r FilteringResourceEventHandler) GetBookmarkFunc() func(resourceVersion string) {
	return bookmarkFuncOf(r.Handler)
}

// GetBookmarkFunc returns the nested handler's function: bookmarks pass any filter.
func (r TypedFilteringResourceEventHandler[T]) GetBookmarkFunc() func(resourceVersion string) {
	return bookmarkFuncOf(r.Handler)
}

func (h *typedResourceEventHandler[T]) GetBookmarkFunc() func(resourceVersion string) {
	return bookmarkFuncOf(h.handler)
}

// Conforms to BookmarkHandler
func (s *sharedIndexInformer) GetBookmarkFunc() func(resourceVersion string) {
	// Locked under s.blockDeltas, like OnAdd.
	return func(resourceVersion string) {
		s.processor.distribute(BookmarkInfo{ResourceVersion: resourceVersion}, false)
	}
}

// notifyBookmark must be called after the handler got the events that led up to resourceVersion.
func notifyBookmark(handler ResourceEventHandler, resourceVersion string) {
	if bookmark := bookmarkFuncOf(handler); bookmark != nil && resourceVersion != "" {
		bookmark(resourceVersion)
	}
}
