"""Base models of the label and their calibration; they read public data only."""
