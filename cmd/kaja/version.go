package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the release build: -ldflags "-X main.version=1.2.3".
var version string

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Say which kaja this is",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			v, commit := buildVersion()
			if commit != "" {
				commit = ", commit " + commit
			}
			_, _ = fmt.Fprintf(a.stdout, "kaja %s (%s %s/%s%s)\n", v, runtime.Version(), runtime.GOOS, runtime.GOARCH, commit)
			return nil
		},
	}
}

// buildVersion is the release's version, else the module's, else "dev"; and the commit, if the build knew it.
func buildVersion() (v, commit string) {
	v = version
	info, ok := debug.ReadBuildInfo()
	if ok && v == "" && info.Main.Version != "(devel)" {
		v = info.Main.Version
	}
	if v == "" {
		v = "dev"
	}
	if !ok {
		return v, ""
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			commit = s.Value[:min(12, len(s.Value))] + commit
		case "vcs.modified":
			if s.Value == "true" {
				commit += " with changes"
			}
		}
	}
	return v, commit
}
