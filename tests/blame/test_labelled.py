"""Blame against labels that were given by hand."""

from __future__ import annotations

import pytest
from labelled_failures import PASSES, judged_by_harness, read_labels

pytest.importorskip("openvino")

#: Of every fifteenth label; the whole is a command of `labelled_failures`.
_EVERY = 15
#: Of these, how many the harness gets right.
_RIGHT = 0.85


def test_labels_are_of_all_kinds_and_each_has_a_reason() -> None:
    labels = read_labels()
    assert len(labels) >= 200
    assert {label.converter for label in labels} == {"dynamo", "torchscript"}
    assert {label.backend for label in labels} == {"ort-cpu", "onnx-reference", "openvino"}
    assert {label.culprit for label in labels} == {"converter", "backend", "pytorch", "spec", "false_alarm"}
    assert all(label.reason and label.where for label in labels)


def test_the_harness_blames_as_people_do() -> None:
    found = [(label, blame) for label, blame, _ in judged_by_harness(read_labels()[::_EVERY]) if blame != PASSES]
    assert len(found) > 20
    wrong = [(str(label.invocation), label.culprit, b) for label, b in found if not label.allows(b)]
    assert len(wrong) <= (1 - _RIGHT) * len(found), wrong
