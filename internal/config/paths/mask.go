package paths

import (
	"net/url"
	"reflect"
	"strings"

	"k8s.io/kubelet/config/v1beta1"
)

// masked is the text that replaces a secret, as in the kubelet's own log.
const masked = "<masked>"

// Masked returns a deep copy of c without values that may be secret: the values (not the names) of staticPodURLHeader
// and, in every URL, the password, a user name without a password (it may be a token) and the values of the query,
// which may be a signature.
func Masked(c *v1beta1.KubeletConfiguration) *v1beta1.KubeletConfiguration {
	c = c.DeepCopy()
	for name := range c.StaticPodURLHeader {
		c.StaticPodURLHeader[name] = []string{masked}
	}
	maskIn(reflect.ValueOf(c).Elem())
	return c
}

// maskIn masks the URLs in all strings of v, which must be settable.
func maskIn(v reflect.Value) {
	switch {
	case HasOwnForm(v.Type()):
	case v.Kind() == reflect.String:
		v.SetString(maskURL(v.String()))
	case v.Kind() == reflect.Pointer && !v.IsNil():
		maskIn(v.Elem())
	case v.Kind() == reflect.Struct:
		for f := range Fields(v) {
			maskIn(f.Value)
		}
	case v.Kind() == reflect.Slice:
		for i := range v.Len() {
			maskIn(v.Index(i))
		}
	case v.Kind() == reflect.Map:
		for _, key := range v.MapKeys() {
			elem := reflect.New(v.Type().Elem()).Elem()
			elem.Set(v.MapIndex(key))
			maskIn(elem)
			v.SetMapIndex(key, elem)
		}
	}
}

// maskURL masks text if it is a URL. It edits the string, so that the other parts stay as they were written.
func maskURL(text string) string {
	scheme, rest, ok := strings.Cut(text, "://")
	if !ok {
		return text
	}
	rest, query, hasQuery := strings.Cut(rest, "?")
	// Only in a valid URL is it certain where the user info ends: in an invalid URL, a password may contain an
	// unescaped "/".
	within := len(rest)
	if _, err := url.Parse(text); err == nil {
		if slash := strings.IndexAny(rest, "/#"); slash >= 0 {
			within = slash
		}
	}
	if at := strings.LastIndex(rest[:within], "@"); at >= 0 {
		rest = maskUser(rest[:at]) + rest[at:]
	}
	if hasQuery {
		rest += "?" + maskQuery(query)
	}
	return scheme + "://" + rest
}

func maskUser(user string) string {
	if name, _, ok := strings.Cut(user, ":"); ok {
		return name + ":" + masked
	}
	return masked
}

func maskQuery(query string) string {
	query, fragment, hasFragment := strings.Cut(query, "#")
	parts := strings.Split(query, "&")
	for i, part := range parts {
		switch name, _, ok := strings.Cut(part, "="); {
		case ok:
			parts[i] = name + "=" + masked
		case part != "":
			parts[i] = masked
		}
	}
	query = strings.Join(parts, "&")
	if hasFragment {
		query += "#" + fragment
	}
	return query
}
