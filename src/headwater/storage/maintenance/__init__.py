"""Background work: index files, retention, removal of logs, following a home."""
