package main

import (
	"path/filepath"
	"runtime"
)

// programPlaces are where a program for linux/ARCH may lie: beside this one, in
// its dist/, in the dist/ of the folder above it (bin/) or of the working
// directory.
func programPlaces(name, arch, own string) []string {
	file := name + "-linux-" + arch
	dir := filepath.Dir(own)
	places := []string{
		filepath.Join(dir, file), filepath.Join(dir, "dist", file), filepath.Join(dir, "..", "dist", file), filepath.Join("dist", file),
	}
	if runtime.GOOS == "linux" && runtime.GOARCH == arch {
		fits := own
		if name != "pipedeck" {
			fits = filepath.Join(dir, name)
		}
		places = append([]string{fits}, places...)
	}
	return places
}
