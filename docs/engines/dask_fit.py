"""Fit, predict and measure on a Dask data frame, here on a local cluster of two processes."""

import dask.dataframe as dd
from distributed import Client, LocalCluster

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic


def main() -> None:
    """Fit, predict and measure where the rows are."""
    data = make_synthetic(3000, random_state=0)
    table = data.X.assign(y=data.y, group=data.sensitive)
    with LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as cluster, Client(cluster):
        rows = dd.from_pandas(table, npartitions=4)  # with your data: dd.read_parquet("s3://...")
        model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
        model.fit(rows, "y", sensitive_features="group")
        decided = model.predict(rows)  # the data frame with a column "prediction"
        found = measure("y", "prediction", sensitive_features="group", groups=data.groups, data=decided)
    assert found.people == 3000


if __name__ == "__main__":
    main()
