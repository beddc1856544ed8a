"""Methods to compare with, one estimator each."""

from justitia.baselines.plain import PlainClassifier

__all__ = ["PlainClassifier"]
