"""Checks of a release: the record of public names, the distribution, clean environments, the bill of materials."""
