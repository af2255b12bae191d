"""Run on a cluster: the operators are divided into micro-shards, and an engine runs these on nodes.

Only `on_ray.py`, the engine, imports Ray. `schedule.py` makes all decisions, without processes or clocks.
"""
