package main

import (
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/kajamq/kaja/broker"
	"github.com/kajamq/kaja/broker/api"
	"github.com/kajamq/kaja/broker/config"
	"github.com/kajamq/kaja/broker/server"
	"github.com/kajamq/kaja/raftctl/image"
)

// docsCommand writes the pages that come out of tables; "make gen" runs it.
func (a *app) docsCommand() *cobra.Command {
	return &cobra.Command{
		Use:    "docs DIR",
		Short:  "Write the generated pages of the documentation",
		Hidden: true,
		Args:   cobra.ExactArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			for name, text := range generatedDocs() {
				if err := os.WriteFile(filepath.Join(args[0], name), []byte(text), 0o644); err != nil {
					return &failure{err, exitFatal}
				}
			}
			return nil
		},
	}
}

// generatedDocs is the pages by their file names.
func generatedDocs() map[string]string {
	var routes []server.Route
	for _, e := range api.Table(api.Services{Config: config.Default(""), Images: noImages{}}) {
		if !e.Node { // no client is served those
			routes = append(routes, e.Route)
		}
	}
	return map[string]string{"config.md": config.Markdown(), "protocol-support.md": broker.ProtocolSupport(routes)}
}

// noImages stands in for a broker where only the table is wanted.
type noImages struct{}

func (noImages) Image() *image.Image { return image.Empty("") }
