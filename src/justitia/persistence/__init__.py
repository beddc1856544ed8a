"""Saving and export of fitted models: a folder, an ONNX file, a run in MLflow."""
