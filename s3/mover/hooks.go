package mover

import "pipedeck/s3/local"

// Points at which Options.Hook is called, in the order of a file's journey.
// Crash tests kill the process at each of them.
const (
	HookFileRead        = "file_read"        // hashed, nothing is recorded yet
	HookIntentSaved     = "intent_saved"     // the ledger knows what is about to be sent
	HookObjectPut       = "object_put"       // the endpoint answered the PUT
	HookPartPut         = "part_put"         // the endpoint answered for one part
	HookBeforeComplete  = "before_complete"  // all parts are there, the object is not
	HookSent            = "sent"             // queued for verification
	HookBatchProven     = "batch_proven"     // the listing agreed
	HookManifestStored  = "manifest_stored"  // the manifest names the batch
	HookLedgerCommitted = "ledger_committed" // verified on disk: removal is allowed
	HookRetiring        = "retiring"         // a directory is on its way out, and all of it is there
	HookBeforeRemove    = "before_remove"
	HookRemoved         = "removed" // unlinked, not counted yet
	HookRebuilt         = "rebuilt" // the bucket was taken over into the ledger
)

// Points of actions that move files away and back.
const (
	HookListed   = "care.listed"   // the list is on disk, nothing was moved yet
	HookMoved    = "care.moved"    // one file lies in its bin, checked
	HookTried    = "care.tried"    // every file was tried, the bin is not closed yet
	HookRestored = "care.restored" // one file is back
	HookEmptied  = "care.emptied"  // all are back, the bin is still there
)

// CarePoints are those of actions, beside the ones of the moves themselves.
func CarePoints() []string {
	return []string{HookListed, HookMoved, HookTried, HookRestored, HookEmptied}
}

// Points are all points those of the removal included.
func Points() []string {
	return append([]string{
		HookFileRead, HookIntentSaved, HookObjectPut, HookPartPut, HookBeforeComplete, HookSent, HookBatchProven,
		HookManifestStored, HookLedgerCommitted, HookRetiring, HookBeforeRemove, HookRemoved, HookRebuilt,
	}, local.Points()...)
}

func (m *Mover) hook(point string) {
	if m.opt.Hook != nil {
		m.opt.Hook(point)
	}
}
