package manifest

// Limits that bound time and memory for any input. All of them are far above the needs of a manifest for a node.
const (
	// maxDocuments is the maximum number of documents in one text.
	maxDocuments = 10_000
	// maxMarks is the maximum number of bytes in one document that could begin a new element, such as "," and ":".
	// An element takes some 200 bytes of memory while it is read, so this limits the memory for one document to
	// about 200 MiB.
	maxMarks = 1_000_000
	// maxMessage is the maximum length in bytes of a message about a field.
	maxMessage = 1024
	// maxErrors is the maximum number of errors that are reported for one document.
	maxErrors = 100
)
