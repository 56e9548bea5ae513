"""Background work: indexing, retention, removal of logs, following a home."""
