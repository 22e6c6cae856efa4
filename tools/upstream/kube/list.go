package main

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// A test of the list: its name as `e2e.test --list-tests` prints it, and where it is expected to pass.
type test struct {
	name string
	kube bool
	lab  bool
	why  string // why it does not pass on the lab
}

// group is the mark that the name begins with, as "[sig-apps]".
func (t test) group() string { return strings.Fields(t.name)[0] }

func (t test) expected(world string) bool {
	if world == "kube" {
		return t.kube
	}
	return t.lab
}

// read reads a list: lines of what is recorded of kube, what is expected of the lab, and a name; a line that begins
// with white space says why the test above does not pass on the lab.
func read(path string) ([]test, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var tests []test
	lines := bufio.NewScanner(file)
	for number := 1; lines.Scan(); number++ {
		line := lines.Text()
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case strings.HasPrefix(line, " ") && len(tests) > 0:
			last := &tests[len(tests)-1]
			last.why = strings.TrimSpace(last.why + " " + strings.TrimSpace(line))
		case len(fields) > 2 && known(fields[0]) && known(fields[1]):
			name := strings.TrimSpace(line[strings.Index(line, "["):])
			tests = append(tests, test{name: name, kube: fields[0] == "pass", lab: fields[1] == "pass"})
		default:
			return nil, fmt.Errorf("%s:%d: expected `pass|fail pass|fail NAME`, found %q", path, number, line)
		}
	}
	return tests, lines.Err()
}

func known(word string) bool { return word == "pass" || word == "fail" }

// write puts what passed on kube into the first column of the list and leaves everything else as it is.
func write(path string, tests []test, kube map[string]outcome) error {
	bytes, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	text := string(bytes)
	for _, test := range tests {
		found, ran := kube[test.name]
		if !ran || found.passed == test.kube {
			continue
		}
		word := map[bool]string{true: "pass", false: "fail"}
		before := fmt.Sprintf("\n%s %s %s\n", word[test.kube], word[test.lab], test.name)
		after := fmt.Sprintf("\n%s %s %s\n", word[found.passed], word[test.lab], test.name)
		text = strings.Replace(text, before, after, 1)
	}
	return os.WriteFile(path, []byte(text), 0o644)
}
