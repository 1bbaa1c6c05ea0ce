package show

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"
)

// Condition is what a pod can be waited for to meet, as `kubectl wait --for` has it.
type Condition struct {
	// created and deleted say that all pods there are meet it, or none does.
	created, deleted bool
	// path is that of a field, or nil; status the type of a condition, or empty.
	path   *jsonpath.JSONPath
	status string
	// value is what the field or the condition has to be; any field will do if anything is set.
	value    string
	anything bool
}

// ParseCondition reads create, delete, condition=NAME[=VALUE] or jsonpath={PATH}[=VALUE].
func ParseCondition(text string) (*Condition, error) {
	switch strings.ToLower(text) {
	case "create":
		return &Condition{created: true}, nil
	case "delete":
		return &Condition{deleted: true}, nil
	}
	c := &Condition{}
	if rest, ok := strings.CutPrefix(text, "condition="); ok {
		name, value, given := strings.Cut(rest, "=")
		if c.status, c.value = name, "True"; given {
			c.value = value
		}
		if name == "" {
			return nil, errors.New("condition= needs a name, such as condition=Ready")
		}
		return c, nil
	}
	rest, ok := strings.CutPrefix(text, jsonPath)
	if !ok {
		return nil, fmt.Errorf("%q is none of condition=NAME[=VALUE], jsonpath={PATH}[=VALUE], create and delete", text)
	}
	end := strings.LastIndex(rest, "}") + 1 // a path may hold "="; without braces it doesn't
	path, value, given := strings.Cut(rest[end:], "=")
	path = rest[:end] + path
	if path == "" || given && value == "" {
		return nil, errors.New("jsonpath is written as jsonpath={PATH} or jsonpath={PATH}=VALUE")
	}
	c.value, c.anything = value, !given
	var err error
	c.path, err = parsePath(path)
	return c, err
}

// Created says that it is met by every pod there is.
func (c *Condition) Created() bool { return c.created }

// Deleted says that it is met by no pod there is.
func (c *Condition) Deleted() bool { return c.deleted }

// Met reports whether a pod that is there meets it.
func (c *Condition) Met(p *v1.Pod) (bool, error) {
	switch {
	case c.Created():
		return true, nil
	case c.status != "":
		for _, s := range p.Status.Conditions {
			if strings.EqualFold(string(s.Type), c.status) {
				return strings.EqualFold(string(s.Status), c.value), nil
			}
		}
		return false, nil
	case c.path == nil:
		return false, nil
	}
	fields, err := data(wholePod(p))
	if err != nil {
		return false, err
	}
	found, err := pick(c.path, fields)
	if err != nil {
		return false, fmt.Errorf("--for: %w", err)
	}
	for _, v := range found {
		if c.anything || fmt.Sprint(v.Interface()) == c.value {
			return true, nil
		}
	}
	return false, nil
}
