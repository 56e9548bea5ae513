"""The questions about homes: a module each, with a `TITLE` and `cases`."""
