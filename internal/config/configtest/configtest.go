// Package configtest generates random KubeletConfigurations for tests, and checks those that tests write.
package configtest

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
	"pgregory.net/rapid"

	"github.com/deckhand-node/deckhand/internal/config/paths"
)

// Draw returns a configuration in which any field may have any value of its type, even an invalid one.
func Draw(t *rapid.T, label string) *v1beta1.KubeletConfiguration {
	c := &v1beta1.KubeletConfiguration{}
	fill(t, label, reflect.ValueOf(c).Elem())
	c.APIVersion, c.Kind = v1beta1.SchemeGroupVersion.String(), "KubeletConfiguration"
	c.Logging.FlushFrequency.SerializeAsString = true // only the serialization format
	return c
}

// SparesHost returns an error for settings with which an agent would move all processes of the host into other cgroups
// (systemCgroups). A test may use such settings only in its own PID namespace, which hides the host's processes.
func SparesHost(settings string) error {
	if strings.Contains(settings, "systemCgroups") && os.Getpid() != 1 {
		return errors.New("systemCgroups would move all processes of this host: run the test in a PID namespace of " +
			"its own")
	}
	return nil
}

// texts are strings that YAML parsers easily mistake for other values.
var texts = []string{
	"", " ", "yes", "no", "on", "y", "true", "null", "~", "<<", "=", "-", "- a", "a: b", "a #b", "#", "?", "[", "{}",
	"@", "`", "%", "&a", "*a", "!a", "|", ">",
	"1", "0x10", "010", "0o7", "1_000", "1e3", ".5", ".nan", "-.inf", "1:20", "2026-01-31", "2026-01-31T12:00:00Z",
	"\"", "'", "\\", "a\nb", "\n", "a\n", " a ", "\ta",
	"a\rb", "\x00", "\x7f", "\u0085", "\u00a0", "\u2028", "\ufeff", "\ufffe", "\U000e0001", "\u202e", "€", "😀", "<&>",
	"---", "...", "a]b", "a[0]", "a.b",
}

func text() *rapid.Generator[string] {
	return rapid.OneOf(rapid.SampledFrom(texts), rapid.String())
}

// name generates the key of a map.
func name() *rapid.Generator[string] {
	plain := rapid.StringMatching(`[a-z]{1,3}(\.[a-z]{1,3})?`)
	return rapid.OneOf(plain, plain,
		rapid.SampledFrom([]string{"", "yes", "1", "null", "<<", "a b", "a: b", "€", "a]", "a[0]", "\u2028"}))
}

func quantity() *rapid.Generator[resource.Quantity] {
	return rapid.Custom(func(t *rapid.T) resource.Quantity {
		suffix := rapid.SampledFrom([]string{"", "m", "k", "Mi", "Gi", "E", "e3", "n"}).Draw(t, "suffix")
		return resource.MustParse(fmt.Sprint(rapid.Int32().Draw(t, "amount"), suffix))
	})
}

func ownForm(t *rapid.T, label string, form any) any {
	switch form.(type) {
	case metav1.Duration:
		return metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, label))}
	case logsapi.TimeOrMetaDuration:
		return logsapi.TimeOrMetaDuration{
			Duration: metav1.Duration{Duration: time.Duration(rapid.Int64().Draw(t, label))}}
	case resource.Quantity:
		return quantity().Draw(t, label)
	case resource.QuantityValue:
		return resource.QuantityValue{Quantity: quantity().Draw(t, label)}
	case metav1.Time:
		return metav1.Unix(rapid.Int64Range(0, 1<<37).Draw(t, label), 0)
	}
	t.Fatalf("%s: there is no generator for %T", label, form)
	return nil
}

func fill(t *rapid.T, label string, v reflect.Value) {
	if paths.HasOwnForm(v.Type()) {
		v.Set(reflect.ValueOf(ownForm(t, label, v.Interface())))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for f := range paths.Fields(v) {
			if rapid.IntRange(0, 3).Draw(t, f.Name) == 3 { // most fields stay unset
				fill(t, f.Name, f.Value)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(t, label, v.Elem())
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), rapid.IntRange(0, 3).Draw(t, label), 3))
		for i := range v.Len() {
			fill(t, label, v.Index(i))
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range rapid.IntRange(0, 3).Draw(t, label) {
			key := reflect.ValueOf(name().Draw(t, label)).Convert(v.Type().Key())
			elem := reflect.New(v.Type().Elem()).Elem()
			fill(t, label, elem)
			v.SetMapIndex(key, elem)
		}
	case reflect.String:
		v.SetString(text().Draw(t, label))
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, label))
	case reflect.Int32:
		v.SetInt(int64(rapid.Int32().Draw(t, label)))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, label))
	case reflect.Uint32:
		v.SetUint(uint64(rapid.Uint32().Draw(t, label)))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, label))
	default:
		t.Fatalf("%s: there is no generator for %s", label, v.Type())
	}
}
