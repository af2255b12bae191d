"""Archives of runs: Parquet datasets partitioned by run, on any file system that fsspec supports.

DATASET/run_id=RUN_ID/verdicts.parquet   moved in last: the run exists once this file does
DATASET/run_id=RUN_ID/run.json           and its other files
DATASET/set-aside/NAME/                  runs that were refused or are damaged, each with a ``reason.json``
DATASET/adding/TOKEN/                    uploads in progress

A partition has the contents of a run directory, so on a local disk it can be given as a RUN. Parquet readers use
``DATASET/run_id=*/verdicts.parquet``.
"""
