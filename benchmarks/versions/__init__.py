"""What a change costs: the same work, done by this checkout and by another one, in turn."""
