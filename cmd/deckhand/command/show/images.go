package show

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/distribution/reference"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/duration"

	"github.com/deckhand-node/deckhand/internal/image"
)

// imageObject is an image with its apiVersion and kind.
type imageObject struct {
	metav1.TypeMeta `json:",inline"`
	image.Image     `json:",inline"`
}

// ImageList returns a list of images for programs.
func ImageList(images []image.Image) any {
	items := make([]imageObject, len(images))
	for i := range images {
		items[i] = imageObject{Kind("Image"), images[i]}
	}
	return ListOf(items)
}

type removedImage struct {
	metav1.TypeMeta    `json:",inline"`
	image.RemovedImage `json:",inline"`
}

// RemovedImageList returns the list of images that were or would be removed, and of those that are kept, for
// programs.
func RemovedImageList(images []image.RemovedImage) any {
	items := make([]removedImage, len(images))
	for i := range images {
		items[i] = removedImage{Kind("RemovedImage"), images[i]}
	}
	return ListOf(items)
}

// ImageRows returns the rows of a table of images, the heading first.
func ImageRows(images []image.Image, now time.Time) [][]string {
	rows := [][]string{}
	for i := range images {
		image := &images[i]
		for _, name := range names(image) {
			rows = append(rows, []string{name, shortID(image), Bytes(image.Size), strings.Join(image.UsedBy, ","),
				used(image, now)})
		}
	}
	slices.SortFunc(rows, func(a, b []string) int { return strings.Compare(a[0], b[0]) })
	return append([][]string{{"IMAGE", "ID", "SIZE", "USED BY", "LAST USED"}}, rows...)
}

// names returns the tags of an image or, if it has none, its digest.
func names(image *image.Image) []string {
	switch {
	case len(image.Refs) > 0:
		return image.Refs
	case len(image.Digests) > 0:
		return image.Digests[:1]
	}
	return []string{"<none>"}
}

// ImageName returns the image's first name, or its short ID if it has none.
func ImageName(image *image.Image) string {
	if name := names(image)[0]; name != "<none>" {
		return name
	}
	return shortID(image)
}

// leastID is the minimum length of an abbreviated ID.
const leastID = 6

// IsImage reports whether name means the image i. It may be a name of the image, with or without registry and tag, a
// digest, or a prefix of the image's ID.
func IsImage(i *image.Image, name string) bool {
	id := strings.TrimPrefix(i.ID, "sha256:")
	if bare := strings.TrimPrefix(name, "sha256:"); len(bare) >= leastID && strings.HasPrefix(id, bare) ||
		i.ID == name {
		return true
	}
	if slices.Contains(i.Refs, name) || slices.Contains(i.Digests, name) {
		return true
	}
	parsed, err := reference.ParseNormalizedNamed(name)
	return err == nil && slices.Contains(i.Refs, reference.TagNameOnly(parsed).String())
}

func shortID(image *image.Image) string {
	id := strings.TrimPrefix(image.ID, "sha256:")
	return id[:min(len(id), 12)]
}

func used(image *image.Image, now time.Time) string {
	switch {
	case len(image.UsedBy) > 0:
		return "now"
	case image.Pinned:
		return "kept"
	case !image.LastUsed.IsZero():
		return duration.HumanDuration(max(now.Sub(image.LastUsed), 0)) + " ago"
	case !image.Detected.IsZero():
		return "never (here for " + duration.HumanDuration(max(now.Sub(image.Detected), 0)) + ")"
	}
	return ""
}

// RemovedImageRows returns the rows of a table of images that were or would be removed, and of those that are kept.
func RemovedImageRows(list []image.RemovedImage, dryRun bool) [][]string {
	gone := "removed"
	if dryRun {
		gone = "would be removed"
	}
	rows := [][]string{{"IMAGE", "ID", "SIZE", "RESULT", "WHY"}}
	for i := range list {
		result := "kept"
		if list[i].Removed {
			result = gone
		}
		rows = append(rows, []string{ImageName(&list[i].Image), shortID(&list[i].Image), Bytes(list[i].Image.Size),
			result, list[i].Why})
	}
	return rows
}

// Freed says how many images were or would be removed, and their total size.
func Freed(list []image.RemovedImage, dryRun bool) string {
	var count int
	var size uint64
	for i := range list {
		if list[i].Removed {
			count++
			size += list[i].Image.Size
		}
	}
	verb := "removed"
	if dryRun {
		verb = "would remove"
	}
	noun := "images"
	if count == 1 {
		noun = "image"
	}
	return fmt.Sprintf("%s %d %s, %s", verb, count, noun, Bytes(size))
}

// PullProgress describes the progress of a pull in a few words.
func PullProgress(p *image.PullProgress, now time.Time) string {
	var parts []string
	if p.Waiting {
		parts = append(parts, "waiting for other pulls")
	}
	if p.Layers > 0 {
		parts = append(parts, fmt.Sprintf("%d of %d layers", p.LayersDone, p.Layers))
	}
	switch {
	case p.Total > 0:
		parts = append(parts, fmt.Sprintf("%s of %s", Bytes(uint64(max(p.Done, 0))), Bytes(uint64(p.Total))))
	case p.Done > 0:
		parts = append(parts, Bytes(uint64(p.Done)))
	}
	if !p.Since.IsZero() {
		parts = append(parts, duration.HumanDuration(max(now.Sub(p.Since), 0)))
	}
	return strings.Join(parts, ", ")
}

// Bytes formats a size in decimal units, as image tools do.
func Bytes(bytes uint64) string {
	units := []string{"B", "kB", "MB", "GB", "TB"}
	size, unit := float64(bytes), 0
	for size >= 999.5 && unit < len(units)-1 {
		size /= 1000
		unit++
	}
	if unit == 0 || size >= 99.95 {
		return fmt.Sprintf("%.0f%s", size, units[unit])
	}
	return fmt.Sprintf("%.1f%s", size, units[unit])
}
