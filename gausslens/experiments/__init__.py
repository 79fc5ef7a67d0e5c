"""Experiments: graphs of tasks, each done once and kept, and where they run."""
