package flags

import (
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	v1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cliflag "k8s.io/component-base/cli/flag"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kubelet/config/v1beta1"
)

// table is a section of flags in the help.
type table struct {
	title string
	// sorted means that the help lists the flags by name instead of in the order of rows.
	sorted bool
	// usage returns the help text of a flag.
	usage func(row) string
	rows  []row
}

// row is one flag.
type row struct {
	name, short string
	// def is the effective default in the flag's syntax; empty for the type's zero value. A test compares it with the
	// default of the field.
	def string
	// alone is the default without a kubeconfig, if it differs (config.Config.Standalone).
	alone string
	// help has the name of the flag's argument in back quotes, as pflag requires.
	help string

	// field is the path of the flag's field in the configuration file. If field is empty, the flag is parsed into the
	// variable to which to points.
	field string
	index []int // index of the field, for reflection; set by New
	to    any
	// form returns a pflag.Value for the flag's own syntax; nil for the usual syntax of its type.
	form func(target any, def string) pflag.Value
	// bare is the value of the flag when it is given without a value. It is empty if the flag needs a value, or is a
	// boolean.
	bare string

	// deprecated means that the kubelet plans to remove the flag. instead is the flag's replacement; if it is empty,
	// the flag's field replaces the flag.
	deprecated bool
	instead    string
	// why is the reason why the flag has no effect; empty if it has an effect.
	why string
	// masked masks the secrets in the flag's value; nil if the value has no secrets.
	masked func(text string) string
}

// replacement returns the replacement of a deprecated flag.
func (r row) replacement() string {
	if r.instead == "" && r.field != "" {
		return "set " + r.field + " in the configuration file"
	}
	return r.instead
}

// The following functions return the help text of a flag. withRemarks is for tables in which only some flags are
// deprecated or have no effect. fieldFirst and plain are for tables whose title says that this applies to all flags.

func withRemarks(r row) string {
	text := r.help
	if r.deprecated {
		text += " (deprecated: " + r.replacement() + ")"
	}
	if r.why != "" {
		text += " (without effect: " + r.why + ")"
	}
	return text
}

func fieldFirst(r row) string { return r.field + ": " + r.help }

func plain(r row) string { return r.help }

// target returns a pointer to the variable that the flag is parsed into; nil if its field doesn't exist.
func (s *Set) target(r *row) any {
	if r.field == "" {
		return r.to
	}
	v := r.of(&s.kubelet)
	switch v.Kind() {
	case reflect.Invalid:
		return nil
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return v.Interface()
	default:
		return v.Addr().Interface()
	}
}

// of returns the row's field in c; an invalid value if there is no such field.
func (r *row) of(c *v1beta1.KubeletConfiguration) reflect.Value {
	if r.index == nil {
		return reflect.Value{}
	}
	return reflect.ValueOf(c).Elem().FieldByIndex(r.index)
}

// fieldIndexes returns the index of each field of the configuration file by its path, except fields behind pointers.
// A search for each flag's field would take most of the time of a start.
func fieldIndexes() map[string][]int {
	indexes := map[string][]int{}
	var add func(t reflect.Type, path string, index []int)
	add = func(t reflect.Type, path string, index []int) {
		for i := range t.NumField() {
			f := t.Field(i)
			name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
			below, at := path, append(slices.Clip(index), i)
			if name != "" {
				below += name + "."
				indexes[path+name] = at
			}
			if f.Type.Kind() == reflect.Struct && (f.Anonymous || name != "") {
				add(f.Type, below, at)
			}
		}
	}
	add(reflect.TypeFor[v1beta1.KubeletConfiguration](), "", nil)
	return indexes
}

// standaloneDefault is the annotation with row.alone, for the help.
const standaloneDefault = "deckhand/standalone-default"

// define adds a flag to fs that is parsed into target. It adds none for an unsupported type; a test checks that there
// are none.
func define(fs *pflag.FlagSet, r *row, usage string, target any) {
	def := r.def
	if r.form != nil {
		target = r.form(target, def)
	}
	switch p := target.(type) {
	case *resource.QuantityValue:
		fs.VarP(newQuantityValue(p), r.name, r.short, usage)
	case pflag.Value:
		fs.VarP(p, r.name, r.short, usage)
	case *string:
		fs.StringVarP(p, r.name, r.short, r.def, usage)
	case *v1beta1.KubeletAuthorizationMode:
		fs.StringVarP((*string)(p), r.name, r.short, r.def, usage)
	case *[]string:
		fs.StringSliceVarP(p, r.name, r.short, strings.Fields(r.def), usage)
		return // a default that is set here would be extended, not replaced, by given values
	case *bool:
		fs.BoolVarP(p, r.name, r.short, false, usage)
	case *int:
		fs.IntVarP(p, r.name, r.short, 0, usage)
	case *int32:
		fs.Int32VarP(p, r.name, r.short, 0, usage)
	case *int64:
		fs.Int64VarP(p, r.name, r.short, 0, usage)
	case *time.Duration:
		fs.DurationVarP(p, r.name, r.short, 0, usage)
	case *metav1.Duration:
		fs.DurationVarP(&p.Duration, r.name, r.short, 0, usage)
	case *logsapi.TimeOrMetaDuration:
		fs.DurationVarP(&p.Duration.Duration, r.name, r.short, 0, usage)
	default:
		if v := mapOrList(target); v != nil {
			fs.VarP(v, r.name, r.short, usage)
		}
	}
	f := fs.Lookup(r.name)
	if f == nil {
		return
	}
	switch {
	case def != "" && r.form != nil:
		f.DefValue = def // a map that is set here would be extended by given values
	case def != "":
		_ = f.Value.Set(def) // never fails: a test checks the defaults
		f.DefValue = f.Value.String()
	}
	if r.alone != "" {
		f.Annotations = map[string][]string{standaloneDefault: {r.alone}}
	}
	if r.bare != "" {
		f.NoOptDefVal = r.bare
	}
}

// mapOrList returns a value for the types that have flag types in Kubernetes.
func mapOrList(target any) pflag.Value {
	switch p := target.(type) {
	case *map[string]string:
		return cliflag.NewMapStringString(p)
	case *map[string]bool:
		return cliflag.NewMapStringBool(p)
	case *[]v1beta1.MemoryReservation:
		return newMemoryValue(p)
	case *[]v1.Taint:
		return &deferredValue{Value: newTaintsValue(p)}
	case *map[string][]string: // headers, which may have secret values
		return &deferredValue{
			Value:   cliflag.NewColonSeparatedMultimapStringString(p),
			Message: "each header must be name:value, several separated by commas",
		}
	case *logsapi.VerbosityLevel:
		return logsapi.VerbosityLevelPflag(p)
	case *logsapi.VModuleConfiguration:
		return logsapi.VModuleConfigurationPflag(p)
	default:
		return nil
	}
}

// The following functions return values for flags with a syntax that differs from the usual syntax of their type. Each
// function supports targets of one type.

// address returns a value for an IP address.
func address(target any, def string) pflag.Value {
	p, _ := target.(*string)
	*p = def
	return newAddressValue(p)
}

// thresholds returns a value for the syntax signal<quantity.
func thresholds(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return onceValue{cliflag.NewLangleSeparatedMapStringString(p), "<"}
}

// bySignal returns a value for the syntax signal=value.
func bySignal(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return onceValue{cliflag.NewMapStringString(p), "="}
}

// unsplit returns a value for one key=value pair with commas in the value.
func unsplit(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return cliflag.NewMapStringStringNoSplit(p)
}

// labels returns a value for pairs whose value may be missing.
func labels(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return (*cliflag.ConfigurationMap)(p)
}
