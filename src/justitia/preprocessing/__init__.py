"""Preprocessing of public tables: features, labels and weights as numbers."""
