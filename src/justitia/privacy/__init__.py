"""Differential privacy of the sensitive attribute: vault, ledger, mechanisms and accounting.

No other folder reads the attribute during training or draws noise. Of this package it imports ``_validate`` and
``exceptions`` only.
"""
