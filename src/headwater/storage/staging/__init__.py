"""Batches that lie beside the log until they are committed."""
