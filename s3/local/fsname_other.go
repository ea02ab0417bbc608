//go:build !linux

package local

// FilesystemName is for the agent, which runs on Linux only.
func FilesystemName(path string) (string, error) {
	return "", pathError("look at", path, errLinuxOnly)
}

// IsNetworkFS is for the agent, which runs on Linux only.
func IsNetworkFS(string) bool { return false }
