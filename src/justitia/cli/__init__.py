"""The command line: ``justitia train data.csv --target income --sensitive sex --groups Female,Male --out model``."""

from justitia.cli.app import cli, main

__all__ = ["cli", "main"]
