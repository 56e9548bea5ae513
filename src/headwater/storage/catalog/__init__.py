"""Which directory belongs to which log, and how far back each log goes."""
