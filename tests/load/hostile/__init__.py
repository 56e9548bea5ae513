"""Hostile clients beside good ones: what they cost the others, and how much memory they take."""
