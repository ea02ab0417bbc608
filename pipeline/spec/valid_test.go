package spec

import "testing"

func TestValidSpecsLoad(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"dflash.yaml", "minimal.yaml", "all-keys.yaml"} {
		load(t, name)
	}
}
