package sundog_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestHouseRules holds every shipped file to the rules a linter does not know:
// each package and each exported name has a doc comment, no init functions, and
// no context made out of nothing in library code.
func TestHouseRules(t *testing.T) {
	for _, p := range listPackages(t) {
		room, _ := roomOf(p.ImportPath)
		program := room == "cmd" || room == "integration" || room == "examples" || p.Name == "main"
		documented := false
		for _, name := range p.GoFiles {
			if strings.HasSuffix(name, ".pb.go") {
				documented = true
				continue
			}
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, name), nil, parser.ParseComments)
			require.NoError(t, err)
			documented = documented || file.Doc != nil
			check := fileCheck{t, fset, program}
			check.decls(file)
			check.calls(file)
		}
		assert.True(t, documented || len(p.GoFiles) == 0, "%s has no package comment", p.ImportPath)
	}
}

type fileCheck struct {
	t       *testing.T
	fset    *token.FileSet
	program bool
}

func (c fileCheck) fail(n ast.Node, what string) {
	assert.Fail(c.t, c.fset.Position(n.Pos()).String()+": "+what)
}

func (c fileCheck) decls(file *ast.File) {
	for _, d := range file.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			if d.Recv == nil && d.Name.Name == "init" {
				c.fail(d, "init function: construct where it is used")
			}
			if d.Name.IsExported() && d.Doc == nil && exportedReceiver(d) {
				c.fail(d, "exported "+d.Name.Name+" has no doc comment")
			}
		case *ast.GenDecl:
			c.specs(d)
		}
	}
}

// specs accepts a comment on the group for constants and variables, and asks for
// one of its own on each exported type.
func (c fileCheck) specs(d *ast.GenDecl) {
	for _, s := range d.Specs {
		switch s := s.(type) {
		case *ast.TypeSpec:
			if s.Name.IsExported() && s.Doc == nil && d.Doc == nil {
				c.fail(s, "exported type "+s.Name.Name+" has no doc comment")
			}
		case *ast.ValueSpec:
			for _, name := range s.Names {
				if name.IsExported() && s.Doc == nil && s.Comment == nil && d.Doc == nil {
					c.fail(s, "exported "+name.Name+" has no doc comment")
				}
			}
		}
	}
}

func (c fileCheck) calls(file *ast.File) {
	if c.program {
		return
	}
	ast.Inspect(file, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && x.Name == "context" && (sel.Sel.Name == "Background" || sel.Sel.Name == "TODO") {
				c.fail(n, "context."+sel.Sel.Name+" in library code: take one from the caller, or derive it from the owner's")
			}
		}
		return true
	})
}

// exportedReceiver reports whether d is a function or a method of an exported type.
func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return true
		}
	}
}
