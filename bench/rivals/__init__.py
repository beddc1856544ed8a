"""Rival methods from the literature, one estimator each."""

from bench.rivals.agarwal import AgarwalClassifier
from bench.rivals.barycentre import BarycentreRegressor
from bench.rivals.bounded_loss import BoundedLossRegressor
from bench.rivals.correlation import CorrelationRemoverRegressor
from bench.rivals.fairgbm import FairGBMClassifier
from bench.rivals.fermi import FermiClassifier
from bench.rivals.histogram import HistogramClassifier
from bench.rivals.linear_post import LinearPostClassifier
from bench.rivals.linear_post_classes import LinearPostClassesClassifier
from bench.rivals.local import LocalClassifier
from bench.rivals.mozannar import MozannarClassifier
from bench.rivals.plain import PlainClassifier
from bench.rivals.private_barycentre import PrivateBarycentreRegressor
from bench.rivals.trees import TreesClassifier, TreesRegressor
from bench.rivals.zafar import ZafarClassifier

__all__ = [
    "AgarwalClassifier",
    "BarycentreRegressor",
    "BoundedLossRegressor",
    "CorrelationRemoverRegressor",
    "FairGBMClassifier",
    "FermiClassifier",
    "HistogramClassifier",
    "LinearPostClassesClassifier",
    "LinearPostClassifier",
    "LocalClassifier",
    "MozannarClassifier",
    "PlainClassifier",
    "PrivateBarycentreRegressor",
    "TreesClassifier",
    "TreesRegressor",
    "ZafarClassifier",
]
