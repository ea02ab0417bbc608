package main

import (
	"strconv"

	"github.com/spf13/cobra"
)

func workerName(stage string, rank int) string { return stage + "/" + strconv.Itoa(rank) }

// shimCommand is the process that an agent puts between itself and a worker.
func (a *app) shimCommand() *cobra.Command {
	var dir string
	cmd := &cobra.Command{
		Use: "shim", Short: "Run one worker for an agent", Args: cobra.NoArgs, Hidden: true,
		RunE: func(*cobra.Command, []string) error { return exitError(shimMain(dir)) },
	}
	cmd.Flags().StringVar(&dir, "dir", "", "the launch's run directory")
	return cmd
}
