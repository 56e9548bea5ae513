"""Reads of a log by Spark."""
