package console

import (
	"embed"
	"net/http"
)

//go:embed web
var web embed.FS

// serveAsset serves what the page is made of. It is no secret, and the login form
// needs some of it.
func serveAsset(w http.ResponseWriter, r *http.Request) { serveFile(w, r, r.PathValue("file")) }

// serveFile serves a file, as all is served: not to be kept. They are few, and small.
func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	http.ServeFileFS(w, r, web, "web/"+name)
}
