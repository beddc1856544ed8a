"""A fit on a data frame of Dask; a cluster of two processes here, yours in earnest."""

import dask.dataframe as dd
from distributed import Client, LocalCluster

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic


def main() -> None:
    """Fit, decide and measure where the rows are."""
    data = make_synthetic(3000, random_state=0)
    table = data.X.assign(y=data.y, group=data.sensitive)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        people = dd.from_pandas(table, npartitions=4)  # dd.read_parquet("s3://...") in earnest
        model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
        model.fit(people, "y", sensitive_features="group")
        decided = model.predict(people)  # the data frame with a column "prediction"
        found = measure("y", "prediction", sensitive_features="group", groups=data.groups, data=decided)
    assert found.people == 3000


if __name__ == "__main__":
    main()
