package treewalk_test

import (
	"os"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume/fusetest"
	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	os.Exit(fusetest.Main(func() int { return mounttest.Run(m) }))
}
