"""The state, a small versioned map, with its journal, image and lock."""
