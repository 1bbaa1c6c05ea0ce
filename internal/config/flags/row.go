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

// table is the flags that help shows together.
type table struct {
	title string
	// sorted has them shown by name instead of in the table's order.
	sorted bool
	// usage is what help says of a flag.
	usage func(row) string
	rows  []row
}

// row is one flag.
type row struct {
	name, short string
	// def is the default that holds, as it would be typed; empty for the type's zero. A test compares it with that of
	// the field.
	def string
	// alone is the default where no kubeconfig is given, if that is another one (config.Config.Standalone).
	alone string
	// help names the flag's argument in back quotes, as pflag has it.
	help string

	// field is the field of the configuration file that the flag stands for, as a path
	// there. Without one, to is what the flag is parsed into.
	field string
	index []int // of the field, for reflection; set by New
	to    any
	// form is the flag's own form of text; nil for the usual one of its type.
	form func(target any, def string) pflag.Value
	// bare is the value of the flag without one; empty if it needs one, or is a switch.
	bare string

	// deprecated says that the kubelet means to remove the flag, and instead what takes
	// its place; empty for its field.
	deprecated bool
	instead    string
	// why says why giving the flag has no effect; empty if it has one.
	why string
	// masked returns a value without what is secret in it; nil if nothing is.
	masked func(text string) string
}

// replacement says what to use instead of a deprecated flag.
func (r row) replacement() string {
	if r.instead == "" && r.field != "" {
		return "set " + r.field + " in the configuration file"
	}
	return r.instead
}

// What help says of a flag: withRemarks where flags that are deprecated or have no effect
// stand among others, fieldFirst and plain where the title says so already.

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

// target is a pointer to what the flag is parsed into; nil for a field that there isn't.
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

// of returns the row's field of c; an invalid value if there is none of that path.
func (r *row) of(c *v1beta1.KubeletConfiguration) reflect.Value {
	if r.index == nil {
		return reflect.Value{}
	}
	return reflect.ValueOf(c).Elem().FieldByIndex(r.index)
}

// fieldIndexes returns by its path where each field of the configuration file is, but for what
// lies behind pointers. A search for the field of each flag would take most of the time of a start.
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

// standaloneDefault is the annotation of a flag that holds row.alone, for help.
const standaloneDefault = "deckhand/standalone-default"

// define adds a flag to fs that is parsed into target. A type it doesn't know makes no
// flag; a test holds it complete.
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
		return // a default that is set would be what is added to
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
		f.DefValue = def // what is set in a map would be added to
	case def != "":
		_ = f.Value.Set(def) // the tables' defaults are good: a test compares them
		f.DefValue = f.Value.String()
	}
	if r.alone != "" {
		f.Annotations = map[string][]string{standaloneDefault: {r.alone}}
	}
	if r.bare != "" {
		f.NoOptDefVal = r.bare
	}
}

// mapOrList returns a value for what Kubernetes has types of flags for.
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
	case *map[string][]string: // headers, whose values may be secret
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

// The forms of flags whose type has another as well. Each is for targets of one type.

// address is an IP address.
func address(target any, def string) pflag.Value {
	p, _ := target.(*string)
	*p = def
	return newAddressValue(p)
}

// thresholds are of the form signal<quantity.
func thresholds(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return cliflag.NewLangleSeparatedMapStringString(p)
}

// unsplit is one key=value, whose value may hold commas.
func unsplit(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return cliflag.NewMapStringStringNoSplit(p)
}

// labels may be without a value.
func labels(target any, _ string) pflag.Value {
	p, _ := target.(*map[string]string)
	return (*cliflag.ConfigurationMap)(p)
}
