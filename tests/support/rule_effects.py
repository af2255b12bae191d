"""How many root causes each rule of `harness.causes.rules` unites with others, in recorded runs.

    PYTHONPATH=tests/support python -m rule_effects RUN...

prints the number of groups of each run, and for each rule how many more there are without it. A rule that changes
fewer than three groups in every run goes.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from harness.causes.groups import COLUMNS, FAILED, failure_groups
from harness.causes.rules import RULES
from harness.record import store


def main() -> None:
    """Print a line for each rule."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("runs", nargs="+", type=Path)
    tables = [store.read(run, COLUMNS, FAILED) for run in parser.parse_args().runs]
    whole = [len(failure_groups(table)) for table in tables]
    print(f"{'groups':28}", *(f"{count:6}" for count in whole))
    for left_out in RULES:
        rest = [rule for rule in RULES if rule is not left_out]
        more = [len(failure_groups(table, rules=rest)) - count for table, count in zip(tables, whole, strict=True)]
        print(f"{left_out.name:28}", *(f"{count:+6}" for count in more))


if __name__ == "__main__":
    main()
