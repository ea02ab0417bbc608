package s3test

// Op is an S3 operation.
type Op string

// The operations that the server tells apart.
const (
	OpPut      Op = "PutObject"
	OpGet      Op = "GetObject"
	OpHead     Op = "HeadObject"
	OpDelete   Op = "DeleteObject"
	OpList     Op = "ListObjectsV2"
	OpCreate   Op = "CreateMultipartUpload"
	OpPart     Op = "UploadPart"
	OpComplete Op = "CompleteMultipartUpload"
	OpAbort    Op = "AbortMultipartUpload"
	OpUploads  Op = "ListMultipartUploads"
	OpParts    Op = "ListParts"
	OpBucket   Op = "HeadBucket"
	OpOther    Op = "Other"
)

// routes is searched from the top: rows with a query parameter come first.
var routes = []struct {
	method string
	object bool
	query  string
	op     Op
}{
	{"PUT", true, "uploadId", OpPart},
	{"PUT", true, "", OpPut},
	{"GET", true, "uploadId", OpParts},
	{"GET", true, "attributes", OpOther},
	{"GET", true, "", OpGet},
	{"HEAD", true, "", OpHead},
	{"DELETE", true, "uploadId", OpAbort},
	{"DELETE", true, "", OpDelete},
	{"POST", true, "uploads", OpCreate},
	{"POST", true, "uploadId", OpComplete},
	{"GET", false, "uploads", OpUploads},
	{"GET", false, "list-type", OpList},
	{"HEAD", false, "", OpBucket},
}

var handlers = map[Op]func(*call) *failure{
	OpPut:      (*call).put,
	OpGet:      (*call).get,
	OpHead:     (*call).get,
	OpDelete:   (*call).remove,
	OpList:     (*call).list,
	OpCreate:   (*call).create,
	OpPart:     (*call).part,
	OpComplete: (*call).complete,
	OpAbort:    (*call).abort,
	OpUploads:  (*call).listUploads,
	OpParts:    (*call).listParts,
	OpBucket:   (*call).headBucket,
}
