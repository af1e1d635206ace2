"""A tower over the last clicks of each row, normalised over rows and clicks."""

from torch import Tensor, nn

CLICKS, NUMBERS = 6, 4  # clicks per row, numbers per click


class LastClicksTower(nn.Module):
    """Predicts the next click's `probability` (B,). B rows, C clicks, N numbers per click."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(NUMBERS)
        self.score = nn.Linear(CLICKS * NUMBERS, 1)

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        clicks_BNC = inputs["clicks"].transpose(1, 2)  # BatchNorm1d normalises along axis 1
        normal_BNC = self.norm(clicks_BNC)
        return {"probability": self.score(normal_BNC.flatten(1)).sigmoid().squeeze(1)}
