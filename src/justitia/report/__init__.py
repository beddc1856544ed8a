"""Reports for people who have to sign: one HTML page and a model card, made of public and noisy numbers only."""

from justitia.report.build import Report, build_report

__all__ = ["Report", "build_report"]
