"""Experiments on real data; outside the wheel."""
