"""Table 2 of the paper as printed: mean and standard deviation over five folds, epsilon 1 for M and PF-LD.

Typed in from the paper's source. Its header calls PF-LD "DF-LP"; Z has no entry where there are more than two groups.
"""

from __future__ import annotations

from typing import NamedTuple


class Printed(NamedTuple):
    """One printed pair of rows: accuracy and fairness violation, each with its standard deviation."""

    accuracy: float
    accuracy_sd: float
    violation: float
    violation_sd: float


#: Columns of the table, in its order.
COLUMNS = ("CLF", "Z", "A", "M", "PF-LD")
#: Data sets and notions, in its order.
DATASETS = ("bank", "income", "compas", "m_bank3", "m_bank5")
NOTIONS = ("accuracy_parity", "demographic_parity", "equalized_odds")

TABLE2: dict[tuple[str, str], dict[str, Printed]] = {
    ("bank", "accuracy_parity"): {
        "CLF": Printed(0.8, 0.007, 0.041, 0.021),
        "Z": Printed(0.801, 0.005, 0.025, 0.015),
        "A": Printed(0.808, 0.004, 0.006, 0.004),
        "M": Printed(0.799, 0.007, 0.036, 0.019),
        "PF-LD": Printed(0.812, 0.004, 0.021, 0.009),
    },
    ("bank", "demographic_parity"): {
        "CLF": Printed(0.8, 0.007, 0.299, 0.034),
        "Z": Printed(0.78, 0.009, 0.03, 0.021),
        "A": Printed(0.772, 0.01, 0.03, 0.017),
        "M": Printed(0.784, 0.008, 0.131, 0.048),
        "PF-LD": Printed(0.793, 0.013, 0.126, 0.027),
    },
    ("bank", "equalized_odds"): {
        "CLF": Printed(0.8, 0.007, 0.239, 0.046),
        "Z": Printed(0.791, 0.006, 0.113, 0.054),
        "A": Printed(0.764, 0.007, 0.125, 0.055),
        "M": Printed(0.796, 0.006, 0.252, 0.103),
        "PF-LD": Printed(0.808, 0.004, 0.188, 0.076),
    },
    ("income", "accuracy_parity"): {
        "CLF": Printed(0.848, 0.003, 0.114, 0.005),
        "Z": Printed(0.848, 0.004, 0.114, 0.007),
        "A": Printed(0.834, 0.005, 0.093, 0.006),
        "M": Printed(0.842, 0.004, 0.11, 0.006),
        "PF-LD": Printed(0.782, 0.008, 0.061, 0.019),
    },
    ("income", "demographic_parity"): {
        "CLF": Printed(0.848, 0.003, 0.181, 0.007),
        "Z": Printed(0.827, 0.019, 0.039, 0.012),
        "A": Printed(0.789, 0.031, 0.044, 0.053),
        "M": Printed(0.792, 0.035, 0.063, 0.054),
        "PF-LD": Printed(0.799, 0.002, 0.019, 0.009),
    },
    ("income", "equalized_odds"): {
        "CLF": Printed(0.848, 0.003, 0.094, 0.013),
        "Z": Printed(0.842, 0.003, 0.102, 0.022),
        "A": Printed(0.84, 0.003, 0.042, 0.005),
        "M": Printed(0.837, 0.002, 0.064, 0.014),
        "PF-LD": Printed(0.841, 0.003, 0.044, 0.006),
    },
    ("compas", "accuracy_parity"): {
        "CLF": Printed(0.683, 0.011, 0.024, 0.014),
        "Z": Printed(0.677, 0.013, 0.016, 0.008),
        "A": Printed(0.675, 0.013, 0.033, 0.022),
        "M": Printed(0.661, 0.019, 0.016, 0.012),
        "PF-LD": Printed(0.671, 0.015, 0.031, 0.029),
    },
    ("compas", "demographic_parity"): {
        "CLF": Printed(0.683, 0.011, 0.121, 0.022),
        "Z": Printed(0.634, 0.017, 0.023, 0.012),
        "A": Printed(0.643, 0.014, 0.048, 0.023),
        "M": Printed(0.664, 0.014, 0.092, 0.032),
        "PF-LD": Printed(0.667, 0.015, 0.098, 0.037),
    },
    ("compas", "equalized_odds"): {
        "CLF": Printed(0.683, 0.011, 0.118, 0.038),
        "Z": Printed(0.647, 0.011, 0.049, 0.033),
        "A": Printed(0.662, 0.019, 0.097, 0.044),
        "M": Printed(0.67, 0.013, 0.139, 0.036),
        "PF-LD": Printed(0.677, 0.015, 0.115, 0.04),
    },
    ("m_bank3", "accuracy_parity"): {
        "CLF": Printed(0.807, 0.008, 0.064, 0.021),
        "A": Printed(0.813, 0.005, 0.037, 0.012),
        "M": Printed(0.817, 0.009, 0.04, 0.032),
        "PF-LD": Printed(0.827, 0.007, 0.033, 0.007),
    },
    ("m_bank3", "demographic_parity"): {
        "CLF": Printed(0.807, 0.008, 0.317, 0.035),
        "A": Printed(0.771, 0.008, 0.067, 0.026),
        "M": Printed(0.797, 0.006, 0.261, 0.085),
        "PF-LD": Printed(0.811, 0.008, 0.218, 0.033),
    },
    ("m_bank3", "equalized_odds"): {
        "CLF": Printed(0.807, 0.008, 0.244, 0.07),
        "A": Printed(0.783, 0.004, 0.199, 0.054),
        "M": Printed(0.808, 0.01, 0.348, 0.133),
        "PF-LD": Printed(0.825, 0.006, 0.279, 0.082),
    },
    ("m_bank5", "accuracy_parity"): {
        "CLF": Printed(0.807, 0.008, 0.078, 0.013),
        "A": Printed(0.809, 0.007, 0.055, 0.018),
        "M": Printed(0.814, 0.008, 0.059, 0.009),
        "PF-LD": Printed(0.827, 0.007, 0.046, 0.008),
    },
    ("m_bank5", "demographic_parity"): {
        "CLF": Printed(0.807, 0.008, 0.341, 0.034),
        "A": Printed(0.757, 0.015, 0.091, 0.028),
        "M": Printed(0.774, 0.011, 0.336, 0.047),
        "PF-LD": Printed(0.805, 0.009, 0.193, 0.035),
    },
    ("m_bank5", "equalized_odds"): {
        "CLF": Printed(0.807, 0.008, 0.271, 0.068),
        "A": Printed(0.785, 0.011, 0.214, 0.045),
        "M": Printed(0.8, 0.008, 0.4, 0.117),
        "PF-LD": Printed(0.823, 0.007, 0.297, 0.084),
    },
}


def printed(dataset: str, notion: str, column: str) -> Printed | None:
    """The printed numbers of one method, or None where the paper has none."""
    return TABLE2[dataset, notion].get(column)
