"""Headwater: one durable event log that five protocols speak and Spark reads."""

__version__ = "0.2.0"
