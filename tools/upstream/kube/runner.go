package main

import (
	"context"
	"encoding/xml"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
)

// An outcome is what became of a test, and what it complained of.
type outcome struct {
	passed bool
	why    string
}

type runner struct {
	binary  string
	jobs    int
	world   world
	reports string
}

// all runs the tests: those that bear company in several processes at once, then the others one after another. One
// that is lost because its process died of another test, or fails where it is expected to pass, runs once more, alone:
// many of these tests wait for less time than a busy machine takes.
func (r runner) all(ctx context.Context, tests []test) (map[string]outcome, error) {
	parts := make([][]test, r.jobs)
	var serial []test
	for i, test := range tests {
		if strings.Contains(test.name, "[Serial]") {
			serial = append(serial, test)
		} else {
			parts[i%r.jobs] = append(parts[i%r.jobs], test)
		}
	}
	found := map[string]outcome{}
	if err := r.together(ctx, parts, found); err != nil {
		return nil, err
	}
	if err := r.process(ctx, "serial", serial, found); err != nil {
		return nil, err
	}
	for i, lost := range tests {
		before, told := found[lost.name]
		if told && (before.passed || !lost.expected(r.world.name)) {
			continue
		}
		if err := r.process(ctx, fmt.Sprintf("alone-%d", i), []test{lost}, found); err != nil {
			return nil, err
		}
		after, toldNow := found[lost.name]
		switch {
		case !told && !toldNow:
			found[lost.name] = outcome{why: "its process ended without a word about it; see " + r.reports}
		case told && after.passed:
			fmt.Printf("%s: passes alone, and failed in company: %s\n    %s\n", r.world.name, lost.name, before.why)
		}
	}
	return found, nil
}

func (r runner) together(ctx context.Context, parts [][]test, found map[string]outcome) error {
	results := make([]map[string]outcome, len(parts))
	failures := make([]error, len(parts))
	var running sync.WaitGroup
	for i, part := range parts {
		running.Add(1)
		results[i] = map[string]outcome{}
		go func() {
			defer running.Done()
			failures[i] = r.process(ctx, fmt.Sprintf("part-%d", i), part, results[i])
		}()
	}
	running.Wait()
	for _, result := range results {
		maps.Copy(found, result)
	}
	return errors.Join(failures...)
}

// process runs some tests in one process, one after another, and notes what became of them.
func (r runner) process(ctx context.Context, name string, tests []test, found map[string]outcome) error {
	if len(tests) == 0 {
		return nil
	}
	folder := filepath.Join(r.reports, name)
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return err
	}
	log, err := os.Create(filepath.Join(folder, "log"))
	if err != nil {
		return err
	}
	defer log.Close()
	var names []string
	for _, test := range tests {
		names = append(names, regexp.QuoteMeta(test.name))
	}
	command := exec.CommandContext(ctx, r.binary,
		"--provider=skeleton", "--kubeconfig="+r.world.kubeconfig, "--report-dir="+folder,
		// The lab does not speak protobuf, which the suite would prefer.
		"--kube-api-content-type=application/json",
		"--allowed-not-ready-nodes=-1", "--minStartupPods=0", "--ginkgo.no-color",
		"--ginkgo.focus=("+strings.Join(names, "|")+")$")
	command.Stdout, command.Stderr = log, log
	err = command.Run()
	// That tests fail is for the report to tell; everything else is not.
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		return err
	}
	if ctx.Err() != nil {
		return fmt.Errorf("%s: the tests took too long; see %s", r.world.name, log.Name())
	}
	return outcomes(filepath.Join(folder, "junit_01.xml"), tests, found)
}

// outcomes notes what a report says of the tests. No report: the process died, and nothing is known.
func outcomes(path string, tests []test, found map[string]outcome) error {
	bytes, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var report struct {
		Suites []struct {
			Cases []struct {
				Name    string `xml:"name,attr"`
				Status  string `xml:"status,attr"`
				Failure string `xml:"failure"`
			} `xml:"testcase"`
		} `xml:"testsuite"`
	}
	if err := xml.Unmarshal(bytes, &report); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	wanted := map[string]bool{}
	for _, test := range tests {
		wanted["[It] "+test.name] = true
	}
	for _, suite := range report.Suites {
		for _, one := range suite.Cases {
			if !wanted[one.Name] {
				if one.Status == "failed" && strings.Contains(one.Name, "BeforeSuite") {
					return fmt.Errorf("the suite did not start: %s", one.Failure)
				}
				continue
			}
			name := strings.TrimPrefix(one.Name, "[It] ")
			found[name] = outcome{one.Status == "passed", strings.TrimSpace(one.Failure)}
		}
	}
	return nil
}
