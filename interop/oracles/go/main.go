// Command oracles is a service that answers with what it has read: oracles servemux|chi PORT, in HTTP/1.1 and HTTP/2.
package main

import (
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"os"
	"runtime"
	"runtime/debug"
	"strings"

	"github.com/go-chi/chi/v5"
	"github.com/go-chi/chi/v5/middleware"
)

type reading struct {
	Oracle   string            `json:"oracle"`
	Version  string            `json:"version"`
	Handler  string            `json:"handler"`
	Captures map[string]string `json:"captures"`
	Method   string            `json:"method"`
	Host     string            `json:"host"`
	Query    map[string]string `json:"query"`
	Headers  map[string]string `json:"headers"`
	Trailers map[string]string `json:"trailers"`
}

var queryNames = []string{"full", "full_export", "q", "limit", "note", "teaser", "mode"}

// version names the libraries that read the request: net/http, and chi on top of it.
var version = func() string {
	text := runtime.Version()
	if build, ok := debug.ReadBuildInfo(); ok && os.Args[1] == "chi" {
		for _, module := range build.Deps {
			text += ", " + module.Path + " " + module.Version
		}
	}
	return text
}()

func answer(w http.ResponseWriter, r *http.Request, handler string, captures map[string]string) {
	// Trailers are available once the body is read.
	_, _ = io.Copy(io.Discard, r.Body)
	// Trusts X-Forwarded-Host, as behind a proxy.
	host := r.Header.Get("X-Forwarded-Host")
	if host == "" {
		host = r.Host
	}
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	query := map[string]string{}
	for _, name := range queryNames {
		if r.URL.Query().Has(name) {
			query[name] = r.URL.Query().Get(name)
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(reading{
		os.Args[1], version, handler, captures, r.Method, host, query, first(r.Header), first(r.Trailer),
	})
}

// first has the value that http.Header.Get returns for each name.
func first(fields http.Header) map[string]string {
	found := map[string]string{}
	for name, values := range fields {
		if len(values) > 0 {
			found[strings.ToLower(name)] = values[0]
		}
	}
	return found
}

var everyMethod = map[string]string{
	"/admin/users": "admin_users", "/preview": "preview", "/export": "export", "/tenant": "tenant", "/search": "search",
	"/article": "article", "/beta": "beta", "/site": "site", "/cache": "cache", "/public": "public", "/Reports/Q3": "report",
}

func withServeMux() http.Handler {
	mux := http.NewServeMux()
	serve := func(pattern, handler string) {
		mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) { answer(w, r, handler, map[string]string{}) })
	}
	for path, handler := range everyMethod {
		serve(path, handler)
	}
	serve("GET /orders", "list_orders")
	serve("POST /orders", "create_order")
	serve("/", "none")
	mux.HandleFunc("/files/{name}", func(w http.ResponseWriter, r *http.Request) {
		answer(w, r, "file", map[string]string{"name": r.PathValue("name")})
	})
	return mux
}

// withFormat treats `/orders.json` as `/orders`, but leaves file names as they are.
func withFormat(next http.Handler) http.Handler {
	cut := middleware.URLFormat(next)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if strings.HasPrefix(r.URL.Path, "/files/") {
			next.ServeHTTP(w, r)
		} else {
			cut.ServeHTTP(w, r)
		}
	})
}

func withChi() http.Handler {
	for _, method := range []string{"PURGE", "PROPFIND"} {
		chi.RegisterMethod(method)
	}
	router := chi.NewRouter()
	router.Use(middleware.StripSlashes, withFormat, middleware.GetHead)
	serve := func(handler string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			captures := map[string]string{}
			if handler == "file" {
				captures["name"] = chi.URLParam(r, "name")
				if r.URL.RawPath != "" {
					// chi then routes by the path as sent, and leaves the decoding to the application.
					captures["name"], _ = url.PathUnescape(captures["name"])
				}
			}
			answer(w, r, handler, captures)
		}
	}
	for path, handler := range everyMethod {
		router.HandleFunc(path, serve(handler))
	}
	router.HandleFunc("/files/{name}", serve("file"))
	router.Get("/orders", serve("list_orders"))
	router.Post("/orders", serve("create_order"))
	router.NotFound(serve("none"))
	return router
}

func main() {
	var handler http.Handler
	switch os.Args[1] {
	case "servemux":
		handler = withServeMux()
	case "chi":
		handler = withChi()
	}
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	server := http.Server{Addr: "127.0.0.1:" + os.Args[2], Handler: handler, Protocols: protocols}
	log.Fatal(server.ListenAndServe())
}
