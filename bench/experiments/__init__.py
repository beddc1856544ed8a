"""Experiments on real data, by `python -m bench.experiments NAME`."""
