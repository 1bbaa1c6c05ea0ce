// Package image is the node's image service: it pulls images for pods, protects images in use from garbage
// collection, and implements the image commands. Subpackages: pull pulls images, access decides which pods may use an
// image on the node, gc collects garbage, and credentials finds registry credentials.
//
// Only access writes the records of which pods may use an image, and only gc those of when an image was last used.
// The wing doesn't decide when a container needs an image: the executor calls it for the action EnsureImage.
package image
