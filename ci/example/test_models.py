import pytest
import torch
from models import Classifier


@pytest.mark.parametrize("routes", [["dynamo -> ort-cpu"], ["dynamo+float16 -> ort-cpu"]], ids=["float32", "float16"])
def test_the_classifier_survives(assert_survives, routes):
    model = Classifier().eval()
    assert_survives(model, (torch.randn(2, 3, 16, 16),), routes=routes, dynamic=["image:0=1..8"])
