package api

import (
	"maps"
	"mime"
	"net/http"
	"slices"
	"strings"
	"time"
)

// A route is one path with the methods it has.
type route struct {
	open    bool // without a key
	methods map[string]http.HandlerFunc
}

// modelPrefix is where single models are; their names may hold slashes.
const modelPrefix = "/v1/models/"

func (a *adapter) routes() map[string]route {
	get := func(h http.HandlerFunc) map[string]http.HandlerFunc {
		return map[string]http.HandlerFunc{http.MethodGet: h, http.MethodHead: h}
	}
	return map[string]route{
		"/health":              {open: true, methods: get(a.health)},
		"/v1/health":           {open: true, methods: get(a.health)},
		"/v1/models":           {methods: get(a.models)},
		modelPrefix:            {methods: get(a.oneModel)},
		"/v1/chat/completions": {methods: map[string]http.HandlerFunc{http.MethodPost: a.complete}},
	}
}

// handler puts the routes behind the guard. Everything that is answered is JSON of the protocol, mistakes too.
func (a *adapter) handler() http.Handler {
	routes := a.routes()
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		// What an earlier answer on this connection left must not end this one.
		_ = http.NewResponseController(w).SetWriteDeadline(time.Time{})
		path := r.URL.Path
		if strings.HasPrefix(path, modelPrefix) && path != modelPrefix {
			path = modelPrefix
		}
		found, ok := routes[path]
		if f := a.guard(r); f != nil {
			f.write(w)
			return
		}
		a.allowOrigin(w, r)
		if preflight(w, r) {
			return
		}
		if !found.open {
			if f := a.authorise(r); f != nil {
				f.write(w)
				return
			}
		}
		h := found.methods[r.Method]
		switch {
		case !ok:
			fail(http.StatusNotFound, typeInvalid, "unknown_url", "There is no %s %s here.", r.Method, r.URL.Path).write(w)
		case h == nil:
			found.refuse(r).write(w)
		default:
			h(w, r)
		}
	})
}

func (r route) refuse(req *http.Request) *failure {
	f := fail(http.StatusMethodNotAllowed, typeInvalid, "method_not_allowed", "%s does not take %s.", req.URL.Path, req.Method)
	f.Allow = strings.Join(slices.Sorted(maps.Keys(r.methods)), ", ")
	return f
}

func (a *adapter) health(w http.ResponseWriter, _ *http.Request) {
	if a.draining.Load() {
		w.Header().Set("Connection", "close")
		writeJSON(w, http.StatusServiceUnavailable, map[string]string{"status": "draining", "platform": defaultModel})
		return
	}
	writeJSON(w, http.StatusOK, map[string]string{"status": "ok", "platform": defaultModel})
}

func (a *adapter) models(w http.ResponseWriter, _ *http.Request) {
	writeJSON(w, http.StatusOK, modelList{Object: "list", Data: []model{a.describe(defaultModel)}})
}

func (a *adapter) oneModel(w http.ResponseWriter, r *http.Request) {
	id := strings.TrimPrefix(r.URL.Path, modelPrefix)
	if id != defaultModel {
		f := fail(http.StatusNotFound, typeInvalid, "model_not_found", "There is no model %q. The agent is %q.", id, defaultModel)
		f.write(w)
		return
	}
	writeJSON(w, http.StatusOK, a.describe(id))
}

// mediaType is the type of a body without its parameters; what cannot be read is returned as it is.
func mediaType(r *http.Request) string {
	given := r.Header.Get("Content-Type")
	t, _, err := mime.ParseMediaType(given)
	if err != nil {
		return given
	}
	return t
}
