// Package mover takes finished output files to the store, has them proven
// there, and only then lets the local copies go.
//
// The order of durability is the product. For each file:
//
//  1. judged complete by its format, with an identity (device, inode, size,
//     mtime, ctime)
//  2. read once into a buffer, hashed from that buffer; the identity is the
//     same after the read
//  3. intent in the ledger, synced: these bytes, from this file, to this key
//  4. PUT, only if the key is absent or its content is provably ours
//  5. seen by an independent client in a listing (or HEAD, or read back), with
//     this size and this hash
//  6. named by a manifest object in the bucket
//  7. verified in the ledger, synced
//  8. identity unchanged, moved aside, no writer, size and mtime unchanged
//  9. unlinked (or kept, or replaced by a placeholder), then counted
//
// A crash between any two steps leaves more copies than needed, never fewer.
// The hook names in hooks.go are the points between them.
package mover
