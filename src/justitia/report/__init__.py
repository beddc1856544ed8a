"""One page and one model card for people who have to sign: made of public and noised numbers only."""

from justitia.report.build import Report, build_report

__all__ = ["Report", "build_report"]
