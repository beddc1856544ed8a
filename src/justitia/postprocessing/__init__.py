"""The dual solved exactly, on top of any model of the label: a plug-in rule with a handful of multipliers."""
