package registry

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"
)

// tokenPath is where tokens are had.
const tokenPath = "/token"

// access knows who may read what.
type access struct {
	bearer bool
	// public repositories are for everybody.
	public []string

	mu     sync.Mutex
	users  map[string]*user
	tokens map[string]string // users, by the tokens they were given
}

type user struct {
	password, identity string
	// repositories are those that the user may read; none means all.
	repositories []string
}

func newAccess() *access { return &access{users: map[string]*user{}, tokens: map[string]string{}} }

// WithUser adds somebody who may read these repositories, or all if none are named.
// A registry with users is closed to everybody else.
func WithUser(name, password string, repositories ...string) Option {
	return func(_ testing.TB, r *Registry) {
		r.access.users[name] = &user{password: password, repositories: repositories}
	}
}

// WithIdentityToken gives a user, added before, a token to log in with instead of the
// password. It needs WithBearer.
func WithIdentityToken(name, token string) Option {
	return func(_ testing.TB, r *Registry) { r.access.users[name].identity = token }
}

// WithPublic opens these repositories to everybody.
func WithPublic(repositories ...string) Option {
	return func(_ testing.TB, r *Registry) { r.access.public = repositories }
}

// WithBearer has users fetch a token with their password, as most public
// registries do, instead of showing that with each request.
func WithBearer() Option { return func(_ testing.TB, r *Registry) { r.access.bearer = true } }

// SetPassword gives a user another password; what was had with the old one is worth nothing any more.
func (r *Registry) SetPassword(name, password string) {
	a := r.access
	a.mu.Lock()
	defer a.mu.Unlock()
	a.users[name].password = password
	for token, owner := range a.tokens {
		if owner == name {
			delete(a.tokens, token)
		}
	}
}

// check tells who asks, and refuses who may not.
func (a *access) check(w http.ResponseWriter, q *http.Request, repository string) (who string, isAllowed bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	who = a.known(q)
	switch {
	case len(a.users) == 0 || slices.Contains(a.public, repository):
		return who, true
	case who == "":
		w.Header().Set("WWW-Authenticate", a.challenge(q, repository))
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "authentication required")
		return who, false
	}
	if allowed := a.users[who].repositories; repository != "" && len(allowed) > 0 && !slices.Contains(allowed, repository) {
		refuse(w, http.StatusForbidden, "DENIED", "requested access to the resource is denied")
		return who, false
	}
	return who, true
}

// known is the user that the request proves to be from; empty if it doesn't.
func (a *access) known(q *http.Request) string {
	if a.bearer {
		var token string
		if _, err := fmt.Sscanf(q.Header.Get("Authorization"), "Bearer %s", &token); err != nil {
			return ""
		}
		return a.tokens[token]
	}
	name, password, ok := q.BasicAuth()
	if u := a.users[name]; !ok || u == nil || u.password != password {
		return ""
	}
	return name
}

func (a *access) challenge(q *http.Request, repository string) string {
	if !a.bearer {
		return `Basic realm="test"`
	}
	scheme := "http"
	if q.TLS != nil {
		scheme = "https"
	}
	text := fmt.Sprintf(`Bearer realm="%s://%s%s",service="test"`, scheme, q.Host, tokenPath)
	if repository != "" {
		text += fmt.Sprintf(`,scope="repository:%s:pull"`, repository)
	}
	return text
}

// token gives a user a token, for the password by GET or POST, or for an identity token
// by POST (https://distribution.github.io/distribution/spec/auth/).
func (a *access) token(w http.ResponseWriter, q *http.Request) {
	a.mu.Lock()
	defer a.mu.Unlock()
	name, password, hasBasic := q.BasicAuth()
	if q.Method == http.MethodPost {
		name, password = q.FormValue("username"), q.FormValue("password")
		if identity := q.FormValue("refresh_token"); identity != "" {
			for n, u := range a.users {
				if u.identity == identity {
					name, password = n, u.password
				}
			}
		}
	}
	token := rand.Text()
	switch u := a.users[name]; {
	case q.Method == http.MethodGet && !hasBasic: // a token of nobody's, good for what is public
	case u == nil || u.password != password:
		refuse(w, http.StatusUnauthorized, "UNAUTHORIZED", "incorrect username or password")
		return
	default:
		a.tokens[token] = name
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(map[string]any{"token": token, "access_token": token, "expires_in": 300}) // who is gone needs none
}

// refuse answers with an error as registries do.
func refuse(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"errors": []any{map[string]string{"code": code, "message": message}}}) // who is gone needs none
}
