"""The reader of ONNX Runtime's words, on messages that the released runtime gave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.convert.exporter_messages import common_words
from harness.run import ort_messages

EXAMPLES = json.loads(Path(__file__).with_name("ort_messages.json").read_text())


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["function"])
def test_a_message_is_read(example: dict[str, object]) -> None:
    answer = getattr(ort_messages, str(example["function"]))(common_words(str(example["message"])))
    assert (list(answer) if isinstance(answer, tuple) else answer) == example["answer"]


def test_each_pattern_has_an_example() -> None:
    texts = [common_words(str(example["message"])) for example in EXAMPLES]
    patterns = {name: value for name, value in vars(ort_messages).items() if isinstance(value, re.Pattern)}
    assert [name for name, pattern in patterns.items() if not any(map(pattern.search, texts))] == []


@pytest.mark.parametrize("name", sorted({str(example["function"]) for example in EXAMPLES}))
def test_other_words_name_nothing(name: str) -> None:
    assert getattr(ort_messages, name)("the sun shone") in ("", False, None)
