"""Rival methods from the literature, one estimator each."""

from bench.rivals.agarwal import AgarwalClassifier
from bench.rivals.fairgbm import FairGBMClassifier
from bench.rivals.fermi import FermiClassifier
from bench.rivals.histogram import HistogramClassifier
from bench.rivals.linear_post import LinearPostClassifier
from bench.rivals.local import LocalClassifier
from bench.rivals.mozannar import MozannarClassifier
from bench.rivals.plain import PlainClassifier
from bench.rivals.zafar import ZafarClassifier

__all__ = [
    "AgarwalClassifier",
    "FairGBMClassifier",
    "FermiClassifier",
    "HistogramClassifier",
    "LinearPostClassifier",
    "LocalClassifier",
    "MozannarClassifier",
    "PlainClassifier",
    "ZafarClassifier",
]
