// Copyright The Fresh KCM Authors.
// SPDX-License-Identifier: Apache-2.0

package rvtracker

// recordHeap orders the records of one line by the RV they await, lowest first.
// Entries carry the low word so that ordering seldom touches the record itself.
type recordHeap []heapEntry

type heapEntry struct {
	lo  uint64
	rec *record
}

func (h recordHeap) less(i, j int) bool {
	if h[i].lo != h[j].lo {
		return h[i].lo < h[j].lo
	}
	return h[i].lo == bigLo && h[i].rec.awaited().less(h[j].rec.awaited())
}

func (h recordHeap) swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].rec.idx, h[j].rec.idx = int32(i), int32(j)
}

func (h *recordHeap) push(r *record) {
	r.idx = int32(len(*h))
	*h = append(*h, heapEntry{lo: r.lo, rec: r})
	h.up(len(*h) - 1)
}

func (h *recordHeap) remove(r *record) {
	i, last := int(r.idx), len(*h)-1
	if i != last {
		h.swap(i, last)
	}
	(*h)[last] = heapEntry{}
	*h = (*h)[:last]
	r.idx = -1
	if i != last {
		h.fix(i)
	}
	// A burst must not keep its memory.
	if cap(*h) > 64 && len(*h) < cap(*h)/8 {
		*h = append(make(recordHeap, 0, cap(*h)/4), *h...)
	}
}

// refresh restores the order after r awaits another RV.
func (h recordHeap) refresh(r *record) {
	h[r.idx].lo = r.lo
	h.fix(int(r.idx))
}

func (h recordHeap) fix(i int) {
	if !h.down(i) {
		h.up(i)
	}
}

func (h recordHeap) up(i int) {
	for i > 0 {
		parent := (i - 1) / 2
		if !h.less(i, parent) {
			return
		}
		h.swap(i, parent)
		i = parent
	}
}

func (h recordHeap) down(i int) bool {
	start := i
	for {
		child := 2*i + 1
		if child >= len(h) {
			break
		}
		if r := child + 1; r < len(h) && h.less(r, child) {
			child = r
		}
		if !h.less(child, i) {
			break
		}
		h.swap(i, child)
		i = child
	}
	return i != start
}

// takeReached removes up to limit records that await pos or less and appends
// them to out. When much of the heap goes at once (a catch-up), one pass and a
// rebuild replace the pops: that keeps a wake of thousands well under 1 ms.
func (h *recordHeap) takeReached(pos version, limit int, out []*record) []*record {
	n := len(*h)
	if n == 0 || pos.less((*h)[0].rec.awaited()) {
		return out
	}
	if n > 16 && n <= limit && h.countReached(pos, 0, n/8) >= n/8 {
		keep := (*h)[:0]
		for _, e := range *h {
			if pos.less(e.rec.awaited()) {
				keep = append(keep, e)
				continue
			}
			e.rec.idx = -1
			out = append(out, e.rec)
		}
		clear((*h)[len(keep):])
		*h = keep
		for i := range keep {
			keep[i].rec.idx = int32(i)
		}
		for i := len(keep)/2 - 1; i >= 0; i-- {
			keep.down(i)
		}
		return out
	}
	for ; limit > 0 && len(*h) > 0; limit-- {
		r := (*h)[0].rec
		if pos.less(r.awaited()) {
			break
		}
		h.remove(r)
		out = append(out, r)
	}
	return out
}

// countReached counts the reached records below i, stopping at limit. Children
// of a record that is not reached are not reached either.
func (h recordHeap) countReached(pos version, i, limit int) int {
	if i >= len(h) || limit <= 0 || pos.less(h[i].rec.awaited()) {
		return 0
	}
	n := 1
	n += h.countReached(pos, 2*i+1, limit-n)
	return n + h.countReached(pos, 2*i+2, limit-n)
}
