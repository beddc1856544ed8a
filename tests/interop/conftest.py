"""No test talks to a network: MLflow is told so before anything imports it."""

import os

os.environ["MLFLOW_DISABLE_TELEMETRY"] = "true"
