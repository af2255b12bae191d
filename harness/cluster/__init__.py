"""A run on a cluster: its operators are cut into micro-shards, and an engine carries these to nodes.

`on_ray.py` is the engine and alone imports it. What is decided, and when, is in `micro_shards.py` and
`schedule.py`, which know neither of processes nor of clocks.
"""
