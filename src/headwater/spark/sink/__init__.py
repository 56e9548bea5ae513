"""Writes from Spark into a log."""
