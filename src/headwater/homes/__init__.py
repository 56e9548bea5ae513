"""Homes that several servers share: where their logs are committed, who appends, and how that passes to the next."""
