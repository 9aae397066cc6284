package console

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"net/http"
	"time"
)

//go:embed web
var web embed.FS

// etags are known from the start, by file.
var etags = digests()

func digests() map[string]string {
	tags := make(map[string]string)
	files, _ := web.ReadDir("web") // it is embedded
	for _, f := range files {
		data, _ := web.ReadFile("web/" + f.Name())
		sum := sha256.Sum256(data)
		tags[f.Name()] = `"` + hex.EncodeToString(sum[:8]) + `"`
	}
	return tags
}

// serveAsset serves what the page is made of. It is no secret, and the login form
// needs some of it.
func serveAsset(w http.ResponseWriter, r *http.Request) { serveFile(w, r, r.PathValue("file")) }

func serveFile(w http.ResponseWriter, r *http.Request, name string) {
	data, err := web.ReadFile("web/" + name)
	if err != nil {
		http.NotFound(w, r)
		return
	}
	w.Header().Set("Cache-Control", "no-cache") // asked for each time, by its ETag
	w.Header().Set("ETag", etags[name])
	http.ServeContent(w, r, name, time.Time{}, bytes.NewReader(data))
}
