"""Measure the harness against a plain loop: the ratio of speed, the same verdicts, and memory that stays flat.

    python ci/benchmark.py                           # dynamo: speed and sameness on the same cases
    python ci/benchmark.py --converter torchscript
    python ci/benchmark.py --overloads 30 --examples 128 --sample 300
    python ci/benchmark.py --memory 20000            # resident memory of a worker over 20,000 cases

The plain loop is what one would write by hand: for every case one public `torch.onnx.export`, one model
check, one ONNX Runtime session, one run, one comparison, in this process. The harness does the same
cases through `run_unit`, as a pytest item does: oracle, isolation, splitting and recording included. Only
the ratio of the two, measured in one run, means anything. A case that hangs or crashes would end the plain
loop, which leaves it out: the ratio is over the cases that both do, without the time that the harness waits
for such a case and for a new worker after it. That time has a line of its own, and so has the ratio with all
of it. With `--sample` the plain loop does some of the cases that the harness does, chosen at random.
"""

from __future__ import annotations

import sys

if __name__ == "__main__":
    # Each worker process imports the main module once more. A session's is pytest's, which costs it nothing.
    from plain_loop import main

    sys.exit(main(__doc__))
