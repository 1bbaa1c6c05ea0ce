package logging

import (
	"errors"
	"fmt"
	"path/filepath"

	logsapi "k8s.io/component-base/logs/api/v1"
)

// CheckVModule returns the errors in a text with the verbosities of files: a comma-separated list of pattern=N, where
// the pattern is a glob for the base name of a Go source file without ".go" (LoggingConfiguration.vmodule,
// --vmodule). It returns all errors, joined.
//
// Unlike klog it refuses a glob that can never match because its syntax is invalid.
func CheckVModule(text string) error {
	var items logsapi.VModuleConfiguration
	if err := logsapi.VModuleConfigurationPflag(&items).Set(text); err != nil {
		return fmt.Errorf("vmodule %q can't be read, it must be a list such as gc*=4,worker=2: %w", text, err)
	}
	var errs []error
	for _, item := range items {
		if _, err := filepath.Match(item.FilePattern, ""); err != nil {
			errs = append(errs, fmt.Errorf("vmodule pattern %q can't match any file: it is not a valid glob",
				item.FilePattern))
		}
	}
	return errors.Join(errs...)
}

// VModuleText formats verbosities of files in the syntax of SetVerbosity's parameter vmodule.
func VModuleText(items logsapi.VModuleConfiguration) string {
	return logsapi.VModuleConfigurationPflag(&items).String()
}
