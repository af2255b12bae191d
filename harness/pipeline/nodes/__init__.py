"""A failing case's graph node by node: each on the backend's own inputs against its operator's definition."""
