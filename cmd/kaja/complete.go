package main

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/kajamq/kaja/broker/config"
)

// completeTimeout bounds what the shell waits for after a tab.
const completeTimeout = time.Second

// complete offers the names that list gives and that are not on the command line yet. A broker that does not answer
// offers nothing.
func (c *adminCommands) complete(taken []string, prefix string, list func(ctx context.Context, client *kgo.Client) ([]string, error)) ([]string, cobra.ShellCompDirective) {
	ctx, cancel := context.WithTimeout(context.Background(), completeTimeout)
	defer cancel()
	var names []string
	err := c.withClient(ctx, func(ctx context.Context, client *kgo.Client) (err error) {
		names, err = list(ctx, client)
		return err
	})
	if err != nil {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	names = slices.DeleteFunc(names, func(n string) bool { return !strings.HasPrefix(n, prefix) || slices.Contains(taken, n) })
	return names, cobra.ShellCompDirectiveNoFileComp
}

func (c *adminCommands) completeTopics(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.complete(args, prefix, func(ctx context.Context, client *kgo.Client) ([]string, error) {
		topics, err := admin(client).ListTopics(ctx)
		return topics.Names(), err
	})
}

func (c *adminCommands) completeGroups(_ *cobra.Command, args []string, prefix string) ([]string, cobra.ShellCompDirective) {
	return c.complete(args, prefix, func(ctx context.Context, client *kgo.Client) ([]string, error) {
		groups, err := admin(client).ListGroups(ctx)
		return groups.Groups(), err
	})
}

// completeTopicConfigs offers the names of topic configs, each with its equals sign.
func completeTopicConfigs(_ *cobra.Command, _ []string, prefix string) ([]string, cobra.ShellCompDirective) {
	var out []string
	for _, d := range config.TopicDefs() {
		if !d.Hidden && strings.HasPrefix(d.Name, prefix) {
			out = append(out, d.Name+"=")
		}
	}
	return out, cobra.ShellCompDirectiveNoFileComp | cobra.ShellCompDirectiveNoSpace
}
