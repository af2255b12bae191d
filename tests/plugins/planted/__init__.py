"""Backends and converters with defects made on purpose, for the tests of the harness.

The harness reaches them as it reaches anyone's: backends through `--backend onnx-api:planted.segfault`,
converters through the entry points of `planted.dist-info` (see `harness_runs.environment`).
"""
