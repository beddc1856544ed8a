"""Fit, predict and measure on a Spark data frame, here with two local threads."""

import os
import sys

from pyspark.sql import SparkSession

from justitia import LagrangianDualClassifier, measure
from justitia.datasets import make_synthetic


def main() -> None:
    """Fit, predict and measure where the rows are."""
    data = make_synthetic(3000, random_state=0)
    table = data.X.assign(y=data.y, group=data.sensitive)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    local = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1", "spark.driver.bindAddress": "127.0.0.1"}
    spark = SparkSession.builder.master("local[2]").config(map=local).getOrCreate()
    rows = spark.createDataFrame(table)  # with your data: spark.read.parquet("s3://...")
    model = LagrangianDualClassifier(epsilon=1.0, groups=data.groups, random_state=0)
    model.fit(rows, "y", sensitive_features="group")
    decided = model.predict(rows)  # the data frame with a column "prediction"
    found = measure("y", "prediction", sensitive_features="group", groups=data.groups, data=decided)
    assert found.people == 3000


if __name__ == "__main__":
    main()
