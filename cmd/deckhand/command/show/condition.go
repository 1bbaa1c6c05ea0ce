package show

import (
	"errors"
	"fmt"
	"strings"

	v1 "k8s.io/api/core/v1"
	"k8s.io/client-go/util/jsonpath"
)

// Condition is a condition of pods that can be waited for, as in `kubectl wait --for`.
type Condition struct {
	// created is a condition that every existing pod meets. deleted is a condition that no existing pod meets.
	created, deleted bool
	// path is the path of a field, or nil; status is the type of a condition, or empty.
	path   *jsonpath.JSONPath
	status string
	// value is the required value of the field, or the required status of the condition. If anything is set, any value
	// meets the condition.
	value    string
	anything bool
}

// ParseCondition parses create, delete, condition=NAME[=VALUE] or jsonpath={PATH}[=VALUE].
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
	end := strings.LastIndex(rest, "}") + 1 // a path in braces may contain "="; one without braces doesn't
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

// Created reports whether every existing pod meets the condition.
func (c *Condition) Created() bool { return c.created }

// Deleted reports whether the condition is that the pod no longer exists.
func (c *Condition) Deleted() bool { return c.deleted }

// Met reports whether the existing pod p meets the condition.
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
