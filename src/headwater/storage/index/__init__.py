"""The index: postings and ids. It is derived; deleting its files loses nothing."""
