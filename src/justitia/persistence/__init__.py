"""A fitted model as files: a folder, an ONNX graph, a run in MLflow."""
