// Package posixtest runs every case of go-fuse's posixtest on the directory $COFS_TEST_DIR.
package posixtest

import (
	"os"
	"sort"
	"testing"

	"github.com/hanwen/go-fuse/v2/posixtest"
)

func TestPosix(t *testing.T) {
	parent := os.Getenv("COFS_TEST_DIR")
	if parent == "" {
		t.Fatal("COFS_TEST_DIR is not set: the directory to test")
	}
	names := make([]string, 0, len(posixtest.All))
	for name := range posixtest.All {
		names = append(names, name)
	}
	sort.Strings(names)
	for _, name := range names {
		t.Run(name, func(t *testing.T) {
			dir, err := os.MkdirTemp(parent, name+".")
			if err != nil {
				t.Fatal(err)
			}
			posixtest.All[name](t, dir)
			if !t.Failed() {
				if err := os.RemoveAll(dir); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
