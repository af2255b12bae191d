"""Verdicts of earlier runs in place of the same work, where running again could give nothing else."""
