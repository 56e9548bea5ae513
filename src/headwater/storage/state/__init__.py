"""The state, a small versioned map: its journal, its image, its lock."""
