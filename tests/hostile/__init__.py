"""One client of each protocol misbehaves, and the others must not pay for it."""
