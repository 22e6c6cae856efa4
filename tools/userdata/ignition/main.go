// Judges Ignition configurations as Ignition does on a first boot.
//
//	judge FILE..
//
// One line for each complaint; the exit code is 1 when there is one.
package main

import (
	"fmt"
	"os"

	"github.com/coreos/ignition/v2/config"
)

// Takes all versions that Ignition of this module reads, warnings included.
func complaints(text []byte) (found []string) {
	_, report, err := config.Parse(text)
	for _, entry := range report.Entries {
		found = append(found, entry.String())
	}
	if err != nil {
		found = append(found, err.Error())
	}
	return found
}

func main() {
	status := 0
	for _, name := range os.Args[1:] {
		text, err := os.ReadFile(name)
		found := []string{}
		if err != nil {
			found = append(found, err.Error())
		} else {
			found = complaints(text)
		}
		for _, complaint := range found {
			fmt.Printf("%s: %s\n", name, complaint)
			status = 1
		}
	}
	os.Exit(status)
}
