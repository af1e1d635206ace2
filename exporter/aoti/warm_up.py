"""Fill the compiler's caches before the first job: `python -m exporter.aoti.warm_up cpu avx2`.

A tiny program is compiled for each target, so that the compiler's headers and the interface of packages are
compiled when a job comes.
"""

import argparse
import sys

import torch
from torch import Tensor, nn
from torch.export import Dim

from exporter.aoti.architecture import require_target
from exporter.aoti.compile import compile_code
from exporter.aoti.probe.check import require_torch
from exporter.errors import CompileFailed, TorchUnsupported, WrongArchitecture
from exporter.spec import CPU_TARGETS, Target


class _ScaleByWeight(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, inputs: dict[str, Tensor]) -> dict[str, Tensor]:
        return {"scaled": inputs["x"] * self.weight}


def warm_up(target: Target) -> None:
    """Compile a tiny program for `target`.

    Raises:
        WrongArchitecture: this machine cannot compile for the target.
        CompileFailed: there is no C++ compiler.
    """
    require_target(target)
    dims = {"x": {0: Dim("n", min=2, max=100)}}
    program = torch.export.export(
        _ScaleByWeight(), ({"x": torch.ones(2, 3)},), dynamic_shapes=(dims,), strict=False
    )
    compile_code(program, target=target, make_headers=True)


def main() -> int:
    """Warm up for each named target; print a line for each, also for those this machine cannot compile for.

    The exit code is 1 when nothing was compiled for any target, or torch lacks what Slipway needs.
    """
    parser = argparse.ArgumentParser(prog="exporter.aoti.warm_up", description=__doc__)
    parser.add_argument("targets", nargs="+", choices=CPU_TARGETS, metavar="target")
    targets = parser.parse_args().targets
    try:
        require_torch()
    except TorchUnsupported as error:
        sys.stderr.write(f"{error.message}; {error.hint}\n")
        return 1
    compiled = 0
    for target in targets:
        try:
            warm_up(target)
        except (WrongArchitecture, CompileFailed) as error:
            sys.stderr.write(f"{target}: not compiled ahead: {error.message}\n")
        else:
            sys.stderr.write(f"{target}: compiled ahead\n")
            compiled += 1
    return 0 if compiled else 1


if __name__ == "__main__":
    sys.exit(main())
