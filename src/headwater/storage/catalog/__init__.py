"""The directories of logs, and the trim points of logs."""
