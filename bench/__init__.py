"""Rival methods, experiments on real data and benchmarks: run from a checkout, not part of the wheel."""
