// Package pipedeck_test holds the house rules that a compiler does not check:
// which folder may import which, who may remove files, how long a function is.
package pipedeck_test

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"
)

// arrows says which of the module's top folders each may import.
var arrows = map[string][]string{
	"cmd":      {"tui", "remote", "s3", "gpu", "pipeline"},
	"tui":      {"tui", "pipeline"},
	"remote":   {"remote", "pipeline"},
	"s3":       {"s3", "pipeline"},
	"gpu":      {"gpu", "pipeline"},
	"pipeline": {"pipeline"},
	"bench":    {"bench", "s3", "pipeline"},
}

// noWorld are the standard packages through which the pure core would reach
// the outside.
var noWorld = []string{"os", "os/exec", "os/signal", "os/user", "net", "net/http", "syscall"}

// noClock are calls that read the wall clock: the time comes as an argument.
var noClock = []string{"time.Now", "time.Since", "time.Until", "time.Sleep"}

// removers are the calls that take a name away from a file.
var removers = []string{
	"os.Remove", "os.RemoveAll", "os.Rename", "os.Truncate", "syscall.Unlink", "syscall.Rename", "syscall.Rmdir",
	"unix.Unlink", "unix.Unlinkat", "unix.Rename", "unix.Renameat", "unix.Renameat2", "unix.Rmdir", "unix.Truncate",
}

// mayRemove names the files outside s3/local that remove or rename something,
// and what: never an output.
var mayRemove = map[string]string{
	"bench/pictures/odd.go":         "the folder of a picture's deck",
	"bench/console/main.go":         "the benchmark's own temporary folder",
	"cmd/pipedeck/connect.go":       "the agent's copy of the spec",
	"cmd/pipedeck/demo.go":          "the demo's own temporary folder",
	"cmd/pipedeck/far.go":           "an uploaded program, to its name",
	"cmd/pipedeck/simworker.go":     "a simulated worker's own files",
	"cmd/pipedeck/upgrade_linux.go": "the installed programs, at undeploy",
	"gpu/simulated.go":              "a simulated GPU's load file",
	"remote/agent/dirs.go":          "a socket that nobody listens on",
	"remote/agent/keeper.go":        "an old agent.log",
	"remote/agent/serve.go":         "the folder of a long-path socket, if empty",
	"remote/logs/position.go":       "old generations of a worker's log",
	"remote/proc/prune_linux.go":    "run directories of launches long gone",
	"remote/proc/records_linux.go":  "a launch's own records",
	"remote/ssh/sshtest/sshtest.go": "a test's own sshd, with its folder",
	"s3/ledger/ledger.go":           "a broken ledger, moved aside",
	"s3/s3test/objects.go":          "bodies of the test server",
	"tui/stderr.go":                 "the file that held stderr",
}

// maxFunction is the length of a function that nobody can read any more.
const maxFunction = 100

// breaches lists every broken house rule of a source tree.
func breaches(tree fs.FS) ([]string, error) {
	var out []string
	documented := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "." || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") {
			return nil
		}
		raw, err := fs.ReadFile(tree, name)
		if err != nil {
			return err
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, raw, parser.ParseComments)
		if err != nil {
			return err
		}
		test := strings.HasSuffix(name, "_test.go")
		if !test {
			dir := path.Dir(name)
			documented[dir] = documented[dir] || f.Doc != nil
			out = append(out, importBreaches(name, f)...)
			out = append(out, callBreaches(name, f)...)
		}
		out = append(out, longFunctions(name, fset, f)...)
		return nil
	})
	for dir, ok := range documented {
		if !ok {
			out = append(out, dir+": no package doc")
		}
	}
	slices.Sort(out)
	return out, err
}

func importBreaches(name string, f *ast.File) []string {
	var out []string
	top, _, _ := strings.Cut(name, "/")
	for _, imp := range f.Imports {
		p, err := strconv.Unquote(imp.Path.Value)
		if err != nil {
			continue
		}
		if to, ours := strings.CutPrefix(p, "pipedeck/"); ours {
			to, _, _ = strings.Cut(to, "/")
			if !slices.Contains(arrows[top], to) {
				out = append(out, fmt.Sprintf("%s: %s must not import %s", name, top, p))
			}
		}
		if top == "pipeline" && slices.Contains(noWorld, p) {
			out = append(out, fmt.Sprintf("%s: the core must not import %s", name, p))
		}
		if top == "tui" && p == "os/exec" {
			out = append(out, fmt.Sprintf("%s: the console must not import %s", name, p))
		}
	}
	return out
}

func callBreaches(name string, f *ast.File) []string {
	var out []string
	top, _, _ := strings.Cut(name, "/")
	ast.Inspect(f, func(n ast.Node) bool {
		sel, ok := n.(*ast.SelectorExpr)
		if !ok {
			return true
		}
		pkg, ok := sel.X.(*ast.Ident)
		if !ok || pkg.Obj != nil {
			return true
		}
		call := pkg.Name + "." + sel.Sel.Name
		if (top == "pipeline" || top == "tui") && slices.Contains(noClock, call) {
			out = append(out, fmt.Sprintf("%s: %s: take the time as an argument", name, call))
		}
		_, excused := mayRemove[name]
		if slices.Contains(removers, call) && !excused && !strings.HasPrefix(name, "s3/local/") {
			out = append(out, fmt.Sprintf("%s: %s: only s3/local removes or renames", name, call))
		}
		return true
	})
	return out
}

func longFunctions(name string, fset *token.FileSet, f *ast.File) []string {
	var out []string
	ast.Inspect(f, func(n ast.Node) bool {
		var body *ast.BlockStmt
		what := "function literal"
		switch x := n.(type) {
		case *ast.FuncDecl:
			body, what = x.Body, x.Name.Name
		case *ast.FuncLit:
			body = x.Body
		}
		if body == nil {
			return true
		}
		if lines := fset.Position(body.End()).Line - fset.Position(n.Pos()).Line + 1; lines > maxFunction {
			out = append(out, fmt.Sprintf("%s: %s has %d lines", name, what, lines))
		}
		return true
	})
	return out
}

func TestHouseRules(t *testing.T) {
	t.Parallel()
	found, err := breaches(os.DirFS("."))
	if err != nil {
		t.Fatal(err)
	}
	for _, b := range found {
		t.Error(b)
	}
	for name := range mayRemove {
		if _, err := os.Stat(name); err != nil {
			t.Errorf("%s may remove files and does not exist", name)
		}
	}
}

func TestHouseRulesSeeEachBreach(t *testing.T) {
	t.Parallel()
	src := func(s string) *fstest.MapFile {
		return &fstest.MapFile{Data: []byte("// Package x is documented.\npackage x\n" + s)}
	}
	for name, tc := range map[string]struct {
		file string
		src  *fstest.MapFile
		want string
	}{
		"adapter to adapter": {"s3/mover/a.go", src(`import _ "pipedeck/remote/proc"`), "s3 must not import"},
		"core to adapter":    {"pipeline/a.go", src(`import _ "pipedeck/s3/local"`), "pipeline must not import"},
		"view to adapter":    {"tui/a.go", src(`import _ "pipedeck/gpu"`), "tui must not import"},
		"core to the world":  {"pipeline/deck/a.go", src(`import _ "os"`), "the core must not import os"},
		"core to the net":    {"pipeline/a.go", src(`import _ "net/http"`), "the core must not import net/http"},
		"core and the clock": {"pipeline/a.go", src("import \"time\"\nvar _ = time.Now"), "take the time"},
		"remover":            {"s3/mover/a.go", src("import \"os\"\nfunc f() { _ = os.Remove(\"x\") }"), "only s3/local"},
		"renamer":            {"remote/proc/a.go", src("import \"os\"\nvar f = os.Rename"), "only s3/local"},
		"long function":      {"gpu/a.go", src("func f() {\n" + strings.Repeat("\n", maxFunction) + "}"), "has 102 lines"},
		"no package doc":     {"gpu/a.go", &fstest.MapFile{Data: []byte("package gpu")}, "no package doc"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := breaches(fstest.MapFS{tc.file: tc.src})
			if err != nil {
				t.Fatal(err)
			}
			if len(got) != 1 || !strings.Contains(got[0], tc.want) {
				t.Errorf("breaches = %q, want one with %q", got, tc.want)
			}
		})
	}
}
