"""Files of events: format detection and rows."""
