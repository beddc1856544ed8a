"""Neural classifiers that treat groups alike, private in the sensitive attribute."""

__version__ = "0.1.0"
