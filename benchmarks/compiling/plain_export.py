"""Export a tower by torch alone: `python -m benchmarks.compiling.plain_export SPEC TOWER FOLDER`.

The tower is opened as Slipway does it, and is then traced by torch.export and compiled and packaged by
AOTInductor with its defaults. Nothing verifies the package. The last line of output holds the seconds of each
step.
"""

import json
import sys
import time
from pathlib import Path

import torch
from torch._inductor import aoti_compile_and_package  # noqa: TID251  what users of torch call

from exporter.aoti.torch_private import sizes_zero_and_one_stay_dynamic
from exporter.pipeline.open_tower import open_tower
from exporter.spec import ExportSpec, TowerName
from exporter.stages import StageClock
from exporter.towers.plan import plan_export, read_config
from exporter.trace.capture import capture_tower


def main() -> None:
    request, name, folder = sys.argv[1], TowerName(sys.argv[2]), Path(sys.argv[3])
    spec = ExportSpec.model_validate_json(Path(request).read_text())
    text = read_config(spec)
    (planned,) = (each for each in plan_export(spec, text) if each.name is name)
    opened = open_tower(planned, spec, text, folder, StageClock(name, lambda event: None))
    tower = opened.tower
    begun = time.monotonic()
    program = capture_tower(tower, {each.name: opened.inputs[each.name] for each in tower.plan.inputs})
    traced = time.monotonic()
    with torch.no_grad(), sizes_zero_and_one_stay_dynamic():
        aoti_compile_and_package(program, package_path=str(folder / "plain.pt2"))
    sys.stdout.write(json.dumps({"trace": traced - begun, "compile": time.monotonic() - traced}) + "\n")


if __name__ == "__main__":
    main()
