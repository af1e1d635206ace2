"""Lines of code that load a published tower into a server, with the job's own names in them."""

import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from exporter.artifact.read import root_of
from exporter.options.layout import Layout
from exporter.spec import Device, Mode, device_of
from jobs.model import Job, TowerProgress

_PYTHON = """\
from slipway.loader import {names}

folder = "{folder}"
tower = load(folder, "{tower}")
{prove}outputs = tower(inputs)  # as tower.inputs lists them
"""

_PYTHON_SHARDED = """\
from pathlib import Path

from exporter.serving.downloaded_tower import open_lookup
from exporter.spec import TowerName
from slipway.loader import {names}

folder = Path("{folder}")
tower = load(folder, "{tower}", lookup=open_lookup(folder, TowerName("{tower}")))
{prove}outputs = tower(inputs)  # as tower.inputs lists them
"""

_PROVE = "prove(tower, folder)  # by its sample requests\n"

_CPP = """\
#include <slipway/loader.h>

auto tower = slipway::load("{folder}", "{tower}");
auto outputs = tower.run(inputs);  // by name
"""


@dataclass(frozen=True, kw_only=True)
class LoadLines:
    """The command and the lines of code that load one tower; texts that do not apply are empty."""

    place: str  # the id of its part of the page
    label: str
    command: str = ""
    python: str = ""
    cpp: str = ""
    remark: str = ""


def load_lines(job: Job) -> tuple[LoadLines, ...]:
    """Return the lines for every tower that the job has published, in the order of its towers."""
    return tuple(_list_lines(job))


def _list_lines(job: Job) -> Iterator[LoadLines]:
    for tower in job.towers:
        uri = job.manifest_uris.get(tower.target or "", job.manifest_uri)
        if tower.package_uri is not None and uri is not None:
            yield _lines_of(job, tower, root_of(uri))


def _lines_of(job: Job, tower: TowerProgress, uri: str) -> LoadLines:
    target = f"-{tower.target}" if tower.target else ""
    place, spec = f"load-{tower.name}{target}", job.spec
    if spec.layout is Layout.TORCHEASYREC and spec.mode is Mode.TWO_STAGE:
        remark = "Its two packages are in TorchEasyRec's layout, for TorchEasyRec's own loader."
        return LoadLines(place=place, label=tower.label, remark=remark)
    folder, is_sharded = f"models/{job.id}{target}", spec.tables.sharded
    is_for_cpu = device_of(tower.target or spec.targets[0]) is Device.CPU
    # Neither text holds a character that Python or C++ would read otherwise.
    texts = {"folder": folder, "tower": tower.name, "names": "load", "prove": ""}
    if spec.sample_rows:
        texts |= {"names": "load, prove", "prove": _PROVE}
    return LoadLines(
        place=place,
        label=tower.label,
        command=f"slipway prepare {shlex.quote(uri)} {folder}",
        python=(_PYTHON_SHARDED if is_sharded else _PYTHON).format(**texts),
        cpp=_CPP.format(**texts) if is_for_cpu and not is_sharded else "",
        remark="" if is_for_cpu else "The C++ header runs towers for CPUs.",
    )
