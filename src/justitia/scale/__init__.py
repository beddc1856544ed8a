"""Fits on rows that are not in memory, in one process or in several."""
