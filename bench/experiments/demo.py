"""``make demo``: the default under demographic parity at epsilon 1, the plain network beside it, the certificate."""

from __future__ import annotations

from bench.experiments.folds import run, summary
from bench.rivals import PlainClassifier
from justitia import LagrangianDualClassifier

METHODS = {
    "plain network": lambda _groups, _notion, seed: PlainClassifier(random_state=seed),
    "justitia, epsilon 1": lambda groups, notion, seed: LagrangianDualClassifier(
        notion, epsilon=1.0, delta=1e-5, groups=groups, random_state=seed
    ),
}


def main() -> None:
    results = run({("income", "demographic_parity"): METHODS, ("bank", "demographic_parity"): METHODS})
    print("\nFive folds, mean (standard deviation). Violation: largest difference in the rate of positive")
    print("decisions between two groups of the test fold, an exact number on public data.\n")
    print(summary(results).to_string(index=False))
    private = results[(results["dataset"] == "income") & (results["method"] == "justitia, epsilon 1")]
    print("\nCertificate of the last Income fit:\n")
    print(private["model"].iloc[-1].certificate_)


if __name__ == "__main__":
    main()
