"""The index: postings and ids. It is derived data; deleting its files loses nothing."""
