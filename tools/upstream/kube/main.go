// Command kube runs Kubernetes' own end-to-end tests, those of a list, on one or more API servers and prints how
// many of them pass where.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A world is an API server with ready nodes.
type world struct{ name, kubeconfig string }

type worlds []world

func (all *worlds) String() string { return fmt.Sprint(*all) }

func (all *worlds) Set(text string) error {
	name, kubeconfig, found := strings.Cut(text, "=")
	if !found || (name != "lab" && name != "kube") {
		return fmt.Errorf("%q is not lab=KUBECONFIG or kube=KUBECONFIG", text)
	}
	*all = append(*all, world{name, kubeconfig})
	return nil
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "upstream:", err)
		os.Exit(1)
	}
}

func run() error {
	var on worlds
	flag.Var(&on, "world", "lab=KUBECONFIG or kube=KUBECONFIG: where to run; may be repeated")
	list := flag.String("list", "tests.txt", "the list of tests")
	binary := flag.String("binary", "e2e.test", "Kubernetes' e2e.test")
	jobs := flag.Int("jobs", 4, "processes at once; tests marked [Serial] run alone after the others")
	third := flag.Int("third", -1, "run every third test only, beginning with this one (0, 1 or 2)")
	reports := flag.String("reports", "", "folder for the logs of the processes")
	record := flag.Bool("record", false, "write into the list what passed on kube")
	limit := flag.Duration("limit", 30*time.Minute, "longest time for the tests of one world")
	flag.Parse()

	tests, err := read(*list)
	if err != nil {
		return err
	}
	chosen := every(tests, *third)
	runner := runner{binary: *binary, jobs: *jobs}
	results := map[string]map[string]outcome{}
	for _, world := range on {
		ctx, cancel := context.WithTimeout(context.Background(), *limit)
		started := time.Now()
		runner.world, runner.reports = world, filepath.Join(*reports, world.name)
		found, err := runner.all(ctx, chosen)
		cancel()
		if err != nil {
			return err
		}
		fmt.Printf("%s: %d tests in %s\n", world.name, len(chosen), time.Since(started).Round(time.Second))
		results[world.name] = found
	}
	if *record && results["kube"] != nil {
		if err := write(*list, tests, results["kube"]); err != nil {
			return err
		}
	}
	return table(os.Stdout, chosen, results)
}

// every leaves each third test, beginning with number first; all of them when first is negative.
func every(tests []test, first int) []test {
	if first < 0 {
		return tests
	}
	var some []test
	for i, test := range tests {
		if i%3 == first%3 {
			some = append(some, test)
		}
	}
	return some
}
