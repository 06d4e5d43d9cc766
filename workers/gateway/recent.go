package gateway

import "slices"

// recent is a map that keeps its newest entries only. It is not safe for concurrent use.
type recent[V any] struct {
	limit  int
	values map[string]V
	order  []string // oldest first
}

func newRecent[V any](limit int) *recent[V] {
	return &recent[V]{limit: limit, values: map[string]V{}}
}

func (r *recent[V]) get(key string) (V, bool) {
	v, ok := r.values[key]
	return v, ok
}

func (r *recent[V]) has(key string) bool {
	_, ok := r.values[key]
	return ok
}

func (r *recent[V]) put(key string, v V) {
	if !r.has(key) {
		r.order = append(r.order, key)
	}
	r.values[key] = v
	for len(r.order) > r.limit {
		delete(r.values, r.order[0])
		r.order = append(r.order[:0], r.order[1:]...)
	}
}

func (r *recent[V]) drop(key string) {
	if r.has(key) {
		delete(r.values, key)
		r.order = slices.DeleteFunc(r.order, func(k string) bool { return k == key })
	}
}
