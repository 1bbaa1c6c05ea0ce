package document

import "strings"

// origins records by path where settings come from: each leaf, what lies above
// it, and the elements of lists.
type origins map[string]place

type place struct {
	Origin
	// whole says that all below comes from here too: a list is given with all its
	// elements, but a struct or map says nothing about the fields it doesn't name.
	whole bool
	// below are the paths known next below this one; some may be forgotten by now.
	below []string
}

// set records path. What is known of paths below it stays.
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

// setAbove records path, of which a part comes from at, and all above it; but a
// whole is left as it is.
func (p origins) setAbove(path string, at Origin) {
	if path != "" && !p[path].whole {
		p.setAbove(above(path), at)
		p.set(path, at, false)
	}
}

// forget drops path and all below it.
func (p origins) forget(path string) {
	at, ok := p[path]
	if !ok {
		return // then there is nothing below it either
	}
	delete(p, path)
	for _, below := range at.below {
		p.forget(below)
	}
}

// origin is where the setting at path comes from: from where it is given itself,
// or else a whole that it is part of. The zero Origin stands for nowhere.
func (p origins) origin(path string) Origin {
	at, exact := p.nearest(path)
	if exact || at.whole {
		return at.Origin
	}
	return Origin{}
}

// nearest finds path or what is next above it.
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

// above is the path of what path is part of; "" at the top. For a map's key that
// has a bracket or dot in it, it may take more than one step.
func above(path string) string {
	if strings.HasSuffix(path, "]") {
		return path[:max(0, strings.LastIndexByte(path, '['))]
	}
	return path[:max(0, strings.LastIndexAny(path, ".["))]
}
