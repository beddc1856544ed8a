"""Fit, predict and measure on a Ray dataset, here on a local cluster of one node."""

import ray

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic


def main() -> None:
    """Fit, predict and measure where the rows are."""
    data = make_synthetic(3000, random_state=0)
    table = data.X.assign(y=data.y, group=data.sensitive)
    ray.init(num_cpus=2, include_dashboard=False, ignore_reinit_error=True)
    rows = ray.data.from_pandas([table[:1500], table[1500:]])  # or ray.data.read_parquet("s3://...")
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    model.fit(rows, "y", sensitive_features="group")
    decided = model.predict(rows)  # the dataset with a column "prediction"
    found = measure("y", "prediction", sensitive_features="group", groups=data.groups, data=decided)
    assert found.people == 3000


if __name__ == "__main__":
    main()
