"""Methods to compare with, one estimator each."""

from justitia.baselines.agarwal import AgarwalClassifier
from justitia.baselines.fairgbm import FairGBMClassifier
from justitia.baselines.fermi import FermiClassifier
from justitia.baselines.histogram import HistogramClassifier
from justitia.baselines.linear_post import LinearPostClassifier
from justitia.baselines.local import LocalClassifier
from justitia.baselines.mozannar import MozannarClassifier
from justitia.baselines.plain import PlainClassifier
from justitia.baselines.zafar import ZafarClassifier

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
