"""The files that a layout adds to an exported tower's, made of its packages and of its sample requests."""

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from exporter.attempt.attempt import Attempt
from exporter.dims.entries import tensor_entries
from exporter.options.layout import Layout
from exporter.packages.package_tower import Packaged
from exporter.packages.parts import TracedPart
from exporter.pipeline.samples import Sample
from exporter.spec import ExportSpec, TowerName
from exporter.trace.outputs import output_entries
from exporter.triton_server.kserve import KSERVE_NAME, render_kserve
from exporter.triton_server.model_config import require_tensors
from exporter.triton_server.names import REPOSITORY, model_name, package_models
from exporter.triton_server.repository import PackageModel, RawTensor, render_repository


def require_layout(spec: ExportSpec, traced: Sequence[TracedPart]) -> None:
    """Refuse packages whose tensors cannot be served in the layout that is asked for.

    Raises:
        InvalidSpec: a tensor is of a dtype or a shape that Triton's backend does not take.
    """
    if spec.layout is Layout.TRITON:
        for part in traced:
            plan = part.part.tower.plan
            require_tensors([*tensor_entries(plan), *output_entries(part.program, plan)])


def render_layout_files(
    tower: TowerName, packaged: Packaged, samples: Sequence[Sample], attempt: Attempt
) -> dict[str, bytes]:
    """Return the files by their paths below the tower's folder: none, unless Triton and KServe read them.

    Raises:
        InvalidSpec: a tensor is of a dtype or a shape that Triton's backend does not take.
    """
    if attempt.spec.layout is not Layout.TRITON:
        return {}
    return _render_triton_files(tower, packaged, samples, attempt)


def _render_triton_files(
    tower: TowerName, packaged: Packaged, samples: Sequence[Sample], attempt: Attempt
) -> dict[str, bytes]:
    """Render the repository; each package is warmed up by the sample requests, as eager hands them on."""
    spec = attempt.spec
    model = model_name(tower, spec.triton_prefix)
    requests = {sample.case.name: _inputs_of_packages(sample, packaged) for sample in samples}
    packages = [
        PackageModel(
            name=name,
            inputs=tensor_entries(part.part.tower.plan),
            outputs=part.code.outputs,
            requests={case: _raw(inputs[place]) for case, inputs in requests.items()},
        )
        for place, (name, part) in enumerate(
            zip(package_models(model, spec.mode), packaged.parts, strict=True)
        )
    ]
    repository_uri = f"{attempt.artifact_uri}/{tower}/{REPOSITORY}"
    package_bytes = sum(part.package.size for part in packaged.parts)
    kserve = render_kserve(model, repository_uri, spec.device, package_bytes=package_bytes)
    return {**render_repository(model, packages, spec.device), KSERVE_NAME: kserve}


def _inputs_of_packages(sample: Sample, packaged: Packaged) -> list[Mapping[str, Tensor]]:
    """Return the inputs of each package, in calling order, for one request."""
    *between, _ = [sample.inputs, *packaged.runnable.run_parts(sample.inputs)]
    return between


def _raw(tensors: Mapping[str, Tensor]) -> dict[str, RawTensor]:
    return {name: RawTensor(shape=tuple(each.shape), data=_bytes(each)) for name, each in tensors.items()}


def _bytes(tensor: Tensor) -> bytes:
    flat = tensor.cpu().clone(memory_format=torch.contiguous_format).reshape(-1)  # also of stride 0
    return flat.view(torch.uint8).numpy().tobytes()
