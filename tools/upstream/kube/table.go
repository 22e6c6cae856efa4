package main

import (
	"fmt"
	"io"
	"text/tabwriter"
)

// table prints how many tests passed where, then by name what did not; a world that was not run shows what is
// recorded of it. It is an error when a test that is expected to pass did not.
func table(out io.Writer, tests []test, results map[string]map[string]outcome) error {
	passed := func(world string, t test) bool {
		if found, ran := results[world]; ran {
			return found[t.name].passed
		}
		return t.expected(world)
	}
	var groups []string
	counts := map[string][4]int{}
	for _, test := range tests {
		if _, seen := counts[test.group()]; !seen {
			groups = append(groups, test.group())
		}
		count := [4]int{0: 1}
		if passed("kube", test) {
			count[1] = 1
		}
		if passed("lab", test) {
			count[2] = 1
		} else if passed("kube", test) {
			count[3] = 1
		}
		for _, name := range []string{test.group(), "all"} {
			sum := counts[name]
			for i := range sum {
				sum[i] += count[i]
			}
			counts[name] = sum
		}
	}
	lines := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintf(lines, "Kubernetes e2e\ttests\tpassed on real%s\tpassed on lab%s\tmissing\n", mark(results, "kube"), mark(results, "lab"))
	for _, name := range append(groups, "all") {
		sum := counts[name]
		fmt.Fprintf(lines, "%s\t%d\t%d\t%d\t%d\n", name, sum[0], sum[1], sum[2], sum[3])
	}
	if err := lines.Flush(); err != nil {
		return err
	}
	return details(out, tests, results)
}

func mark(results map[string]map[string]outcome, world string) string {
	if _, ran := results[world]; ran {
		return ""
	}
	return " (recorded)"
}

// details names what did not pass.
func details(out io.Writer, tests []test, results map[string]map[string]outcome) error {
	unexpected := 0
	for _, world := range []string{"kube", "lab"} {
		found, ran := results[world]
		if !ran {
			continue
		}
		for _, test := range tests {
			switch result := found[test.name]; {
			case result.passed && !test.expected(world):
				fmt.Fprintf(out, "\n%s: passes now, so the list is behind: %s\n", world, test.name)
			case !result.passed && test.expected(world):
				unexpected++
				fmt.Fprintf(out, "\n%s: FAILED: %s\n    %s\n", world, test.name, result.why)
			case !result.passed && world == "lab":
				fmt.Fprintf(out, "\n%s: missing: %s\n    %s\n", world, test.name, test.why)
			}
		}
	}
	if unexpected > 0 {
		return fmt.Errorf("%d tests failed that are expected to pass", unexpected)
	}
	return nil
}
