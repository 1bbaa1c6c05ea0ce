// Package image is the node's image service: it pulls images for pods, protects images in use from garbage
// collection, and implements the image commands. Subpackages: pull pulls images, access decides which pods may use an
// image on the node, gc collects garbage, and credentials finds registry credentials.
//
// access is the one writer of the records of pods that may use an image, gc of the time of an image's last use. The
// wing doesn't decide when a container needs an image: the executor calls it for the action EnsureImage.
package image
