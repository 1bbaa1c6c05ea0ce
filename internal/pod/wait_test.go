package pod

import (
	"encoding/json"
	"reflect"
	"testing"
	"time"
)

// TestKey: every field tells one wait from another but those that say how it goes on.
func TestKey(t *testing.T) {
	same := map[string]bool{"Since": true, "Next": true, "Attempts": true, "Pull": true, "Disk": true}
	plain := Wait{Code: WaitRetry}
	for _, f := range reflect.VisibleFields(reflect.TypeFor[Wait]()) {
		w := plain
		switch v := reflect.ValueOf(&w).Elem().FieldByIndex(f.Index); v.Interface().(type) {
		case time.Time:
			v.Set(reflect.ValueOf(time.Unix(1, 0)))
		case Object:
			v.Set(reflect.ValueOf(Object{Kind: "Secret", Name: "x"}))
		case Pull:
			v.Set(reflect.ValueOf(Pull{Begun: true}))
		default:
			switch {
			case v.CanInt():
				v.SetInt(1)
			case v.Kind() == reflect.Bool:
				v.SetBool(true)
			default:
				v.SetString("x")
			}
		}
		if got := w.Key() == plain.Key(); got != same[f.Name] {
			t.Errorf("with another %s the key is the same: %v", f.Name, got)
		}
	}
}

// TestObjectsOfEarlierJournals: what was written as one text is still read.
func TestObjectsOfEarlierJournals(t *testing.T) {
	for text, want := range map[string]Object{
		`"ConfigMap default/web"`:                 {Kind: "ConfigMap", Namespace: "default", Name: "web"},
		`"RuntimeClass kata"`:                     {Kind: "RuntimeClass", Name: "kata"},
		`{"kind":"Secret","namespace":"default"}`: {Kind: "Secret", Namespace: "default"},
	} {
		var got Object
		if err := json.Unmarshal([]byte(text), &got); err != nil || got != want {
			t.Errorf("%s is %+v, %v", text, got, err)
		}
	}
}
