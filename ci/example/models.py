"""A model of ours."""

import torch


class Classifier(torch.nn.Module):
    """A small convolutional classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.features = torch.nn.Sequential(
            torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU()
        )
        self.head = torch.nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        """Return the scores of four classes."""
        return self.head(self.features(image).mean((2, 3)))


def make_model():
    """Return the model with example inputs, as `conformance check models.py:make_model` takes it."""
    return Classifier().eval(), (torch.randn(2, 3, 16, 16),)
