"""Batches staged beside the log until they are committed."""
