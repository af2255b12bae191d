"""The reader of exporters' words, on messages that the released exporters and the ONNX checker gave."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from harness.compare.signatures import normalise
from harness.convert import exporter_messages

EXAMPLES = json.loads(Path(__file__).with_name("exporter_messages.json").read_text())
#: These read the message itself; the others read `common_words` of it.
READ_THE_MESSAGE = ("message_facts", "common_words", "raising_line", "rejected_node")


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda example: example["function"])
def test_a_message_is_read(example: dict[str, object]) -> None:
    name, message = str(example["function"]), str(example["message"])
    words = message if name in READ_THE_MESSAGE else exporter_messages.common_words(message)
    answer = getattr(exporter_messages, name)(words)
    assert (list(answer) if isinstance(answer, tuple) else answer) == example["answer"]


def test_each_pattern_has_an_example() -> None:
    messages = [str(example["message"]) for example in EXAMPLES]
    texts = [
        text for message in messages for text in (message, normalise(message), exporter_messages.common_words(message))
    ]
    patterns = {name: value for name, value in vars(exporter_messages).items() if isinstance(value, re.Pattern)}
    assert [name for name, pattern in patterns.items() if not any(map(pattern.search, texts))] == []


@pytest.mark.parametrize("name", sorted({str(example["function"]) for example in EXAMPLES} - {"common_words"}))
def test_other_words_name_nothing(name: str) -> None:
    assert not getattr(exporter_messages, name)("the sun shone")
