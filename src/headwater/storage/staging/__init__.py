"""Batches staged next to the log until they are committed."""
