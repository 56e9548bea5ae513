"""Counts, histograms and terms, answered from the index."""
