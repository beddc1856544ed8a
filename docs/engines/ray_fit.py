"""A fit on a data frame of Ray; a cluster of one node here, yours in earnest."""

import ray

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic


def main() -> None:
    """Fit, decide and measure where the rows are."""
    data = make_synthetic(3000, random_state=0)
    table = data.X.assign(y=data.y, group=data.sensitive)
    ray.init(num_cpus=2, include_dashboard=False, ignore_reinit_error=True)
    people = ray.data.from_pandas([table[:1500], table[1500:]])  # ray.data.read_parquet("s3://...") in earnest
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    model.fit(people, "y", sensitive_features="group")
    decided = model.predict(people)  # the dataset with a column "prediction"
    found = measure("y", "prediction", sensitive_features="group", groups=data.groups, data=decided)
    assert found.people == 3000


if __name__ == "__main__":
    main()
