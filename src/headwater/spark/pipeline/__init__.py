"""Options, runs and stops of all pipelines."""
