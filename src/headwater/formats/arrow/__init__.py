"""Events as Arrow columns."""
