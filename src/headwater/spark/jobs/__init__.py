"""The pipelines: one module each, with its options, its plan and its run."""
