"""Runs kept together: Parquet partitioned by run, on any file system that fsspec knows.

DATASET/run_id=RUN_ID/verdicts.parquet   a run is there from the moment that this file is, moved in last
DATASET/run_id=RUN_ID/run.json           and its other files
DATASET/set-aside/NAME/                  runs that were refused or found damaged, with a ``reason.json``
DATASET/adding/TOKEN/                    uploads that go on

A partition holds what a run directory holds, so that on a local disk it can be named as a RUN. Readers of
Parquet take ``DATASET/run_id=*/verdicts.parquet``.
"""
