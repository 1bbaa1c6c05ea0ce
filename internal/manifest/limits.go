package manifest

// Limits that bound time and memory for any input. All of them are far above
// what a manifest written for a node holds.
const (
	// maxDocuments is how many documents one text may have.
	maxDocuments = 10_000
	// maxMarks is how many bytes of one document may be such that they could
	// begin a new element (see elements). An element costs some 200 bytes of
	// memory while it is read, so this keeps one document below about 200 MiB.
	maxMarks = 1_000_000
	// maxDepth is how deep objects and lists may be nested. A Pod needs 15.
	maxDepth = 100
	// maxPath is how long a field's path may be, in bytes, before it is told in part only.
	maxPath = 512
	// maxMessage is the same for what is wrong with a field.
	maxMessage = 1024
	// maxAliasCost is how much the YAML aliases of one document may add to it,
	// in bytes of text plus elementCost for each element. It stops texts
	// that are small and explode when aliases are followed ("billion laughs").
	maxAliasCost = 4 << 20
	// elementCost is what an element counts beside its text.
	elementCost = 16
	// maxQuantity is how many characters a resource quantity may have.
	maxQuantity = 64
	// maxErrors is how many errors are told for one document.
	maxErrors = 100
)
