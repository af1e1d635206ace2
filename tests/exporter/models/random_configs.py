"""Tests over seeded random configs: a few in the ordinary suite, a thousand with the marker `families`."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import nn

FEW, MANY = 30, 1000


class Draw(random.Random):
    """A source of random settings; the same seed draws the same ones."""

    def width(self, most: int = 9) -> int:
        """Draw a width of at least one, odd ones among them."""
        return self.randint(1, most)

    def widths(self, most: int = 3) -> tuple[int, ...]:
        """Draw the widths of one to `most` layers."""
        return tuple(self.width() for _ in range(self.randint(1, most)))

    def flag(self) -> bool:
        """Draw whether an option is set."""
        return self.random() < 0.5

    def weights(self, module: nn.Module) -> nn.Module:
        """Draw a module's weights, so that none is zero or one as initialised, and return it for serving.

        Buffers, as variances of batch norms, become positive.
        """
        with torch.no_grad():
            for weight in module.parameters():
                if weight.is_floating_point():
                    weight.copy_(torch.randn_like(weight) * 0.5)
            for buffer in module.buffers():
                if buffer.is_floating_point():
                    buffer.copy_(torch.rand_like(buffer) + 0.5)
        return module.eval()


def over_random_configs(test: Callable[[Draw], None]) -> Callable[[range], None]:
    """Run a test for every seed; the seed of a failure is shown below its error.

    torch draws from the same seed, so that `torch.randn` and weights are also repeatable.
    """

    @pytest.mark.parametrize(
        "seeds",
        [
            pytest.param(range(FEW), id="few"),
            pytest.param(range(FEW, MANY), id="many", marks=pytest.mark.families),
        ],
    )
    def run(seeds: range) -> None:
        for seed in seeds:
            torch.manual_seed(seed)
            try:
                test(Draw(seed))
            except Exception as error:
                error.add_note(f"drawn by Draw({seed}), after torch.manual_seed({seed})")
                raise

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    return run
