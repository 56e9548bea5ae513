"""Odd events, one a line of `events.ndjson`: each with the one verdict that every way in must give."""
