"""Methods to compare with, one estimator each."""

from justitia.baselines.agarwal import AgarwalClassifier
from justitia.baselines.fermi import FermiClassifier
from justitia.baselines.histogram import HistogramClassifier
from justitia.baselines.mozannar import MozannarClassifier
from justitia.baselines.plain import PlainClassifier
from justitia.baselines.zafar import ZafarClassifier

__all__ = [
    "AgarwalClassifier",
    "FermiClassifier",
    "HistogramClassifier",
    "MozannarClassifier",
    "PlainClassifier",
    "ZafarClassifier",
]
