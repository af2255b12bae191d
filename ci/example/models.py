import torch


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        layers = torch.nn.Conv2d(3, 8, 3, padding=1), torch.nn.BatchNorm2d(8), torch.nn.SiLU()
        self.features = torch.nn.Sequential(*layers)
        self.head = torch.nn.Linear(8, 4)

    def forward(self, image: torch.Tensor) -> torch.Tensor:
        return self.head(self.features(image).mean((2, 3)))


def make_model():
    return Classifier().eval(), (torch.randn(2, 3, 16, 16),)
