package runsource_test

import (
	"testing"

	"github.com/go-logr/logr"

	"github.com/deckhand-node/deckhand/internal/desired"
	"github.com/deckhand-node/deckhand/internal/desired/runsource"
	"github.com/deckhand-node/deckhand/internal/desired/sourcetest"
	"github.com/deckhand-node/deckhand/internal/pod"
)

func TestContract(t *testing.T) {
	sourcetest.Run(t, func(t *testing.T) sourcetest.Fixture {
		var source *runsource.Source
		var current *runsource.Addition
		remove := func() {
			if current != nil {
				current.Remove()
				current = nil
			}
		}
		return sourcetest.Fixture{
			Kind: pod.SourceRun,
			New: func(sink desired.Sink) sourcetest.Source {
				source = runsource.New(sourcetest.NewReader(pod.SourceRun), sink, nil, logr.Discard())
				return source
			},
			Put: func(text string) {
				before := current
				added, err := source.Add("pods.yaml", []byte(text))
				if err != nil && before != nil {
					// Either the text is bad, or the name is still taken by the former
					// addition, which a person would end first.
					if !isTaken(err) {
						return
					}
					remove()
					added, err = source.Add("pods.yaml", []byte(text))
				}
				if err == nil {
					current = added
				}
			},
			Remove: remove,
		}
	})
}
