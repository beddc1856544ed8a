"""Fairness metrics by group: exact, for those who may see the attribute, or measured privately."""
