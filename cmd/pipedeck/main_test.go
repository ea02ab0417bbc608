package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// TestMain lets this test binary be the command `pipedeck`: for the scripts
// under that name, and as a shim, which starts itself as /proc/self/exe.
func TestMain(m *testing.M) {
	if filepath.Base(os.Args[0]) == "exe" {
		main()
	}
	testscript.Main(m, map[string]func(){"pipedeck": main})
}
