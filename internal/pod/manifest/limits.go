package manifest

// Limits that bound time and memory for any input. All of them are far above
// what a manifest written for a node holds.
const (
	// maxDocuments is how many documents one text may have.
	maxDocuments = 10_000
	// maxMarks is how many bytes of one document may be such that they could
	// begin a new element. An element costs some 200 bytes of
	// memory while it is read, so this keeps one document below about 200 MiB.
	maxMarks = 1_000_000
	// maxMessage is how long a message about a field may be, in bytes.
	maxMessage = 1024
	// maxErrors is how many errors are reported for one document.
	maxErrors = 100
)
