"""Counts, histograms and terms, answered by the index."""
