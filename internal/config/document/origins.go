package document

import "strings"

// origins records the origins of settings by path: leaves, their parents, and the elements of lists.
type origins map[string]place

type place struct {
	Origin
	// whole says that all settings below this path have this origin, too. A list sets all of its elements, but a struct
	// or map in a file doesn't set the fields that it omits.
	whole bool
	// below are the recorded paths directly below this path. Some of them may have been removed since.
	below []string
}

// set records at as the origin of path. The records of the paths below it stay.
func (p origins) set(path string, at Origin, whole bool) {
	old, known := p[path]
	p[path] = place{Origin: at, whole: whole, below: old.below}
	if known {
		return
	}
	for up := above(path); up != ""; up = above(up) {
		if parent, ok := p[up]; ok {
			parent.below = append(parent.below, path)
			p[up] = parent
			return
		}
	}
}

// setAbove records at as the origin of path and its parents, because a part of each of them was set there. It doesn't
// change the records of paths that are whole.
func (p origins) setAbove(path string, at Origin) {
	if path != "" && !p[path].whole {
		p.setAbove(above(path), at)
		p.set(path, at, false)
	}
}

// forget removes path and everything below it.
func (p origins) forget(path string) {
	at, ok := p[path]
	if !ok {
		return // without a record of path, there is none below it
	}
	delete(p, path)
	for _, below := range at.below {
		p.forget(below)
	}
}

// origin returns the origin of the setting at path: its own record, or the record of its nearest parent if that is
// whole. If there is neither, it returns the zero Origin.
func (p origins) origin(path string) Origin {
	at, exact := p.nearest(path)
	if exact || at.whole {
		return at.Origin
	}
	return Origin{}
}

// nearest returns the record of path or of its nearest parent.
func (p origins) nearest(path string) (at place, exact bool) {
	exact = true
	for path != "" {
		if at, ok := p[path]; ok {
			return at, exact
		}
		path, exact = above(path), false
	}
	return place{}, false
}

// above returns the parent of path; "" at the top. If a map's key contains a bracket or dot, several calls may be
// needed to reach the parent.
func above(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(0, strings.LastIndexByte(path, '['))]
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
