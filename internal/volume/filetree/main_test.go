package filetree_test

import (
	"os"
	"testing"

	"github.com/deckhand-node/deckhand/internal/volume/mounttest"
)

func TestMain(m *testing.M) {
	os.Exit(mounttest.Main(func() int { return mounttest.Run(m) }))
}
