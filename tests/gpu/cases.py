"""Exports for a GPU: recorded models of all families in both modes, and each thing besides, once."""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from benchmarks.gpu.export_process import ExportResult

ZOO = Path(__file__).parents[1] / "board" / "zoo.json"
FAMILIES = ("hstu_match", "dlrm_hstu", "dlrm_hstu_trunc", "dssm", "dat", "mind", "multi_tower_din", "dbmtl")
MORE_FAMILIES = (
    *(
        "ultra_hstu",
        "sid_rqvae",
        "sid_rqkmeans",
        "dssm_v2",
        "tdm",
        "dc2vr",
        "pepnet",
        "ple",
        "mmoe",
        "wukong",
    ),
    *("multi_tower_seq_kinds", "rocket_launching", "mask_net", "multi_tower", "dcn_v1", "dcn_v2"),
    *("dlrm", "deepfm", "xdeepfm", "wide_and_deep"),
)


@dataclass(frozen=True)
class Case:
    """A recorded model, and what its spec says beside the paths."""

    model: str
    changes: tuple[tuple[str, object], ...]

    @property
    def name(self) -> str:
        words = (field if value is True else str(value) for field, value in self.changes)
        return "-".join((self.model, *words)).replace(" ", "")


def _case(model: str, **changes: object) -> Case:
    return Case(model, tuple(changes.items()))


# The slowest first.
IN_BOTH_MODES = tuple(_case(model, mode=mode) for model in FAMILIES for mode in ("unified", "two_stage"))
WITH_KERNELS = tuple(
    _case(model, mode=mode, kernel="triton")
    for model in ("hstu_match", "dlrm_hstu", "dlrm_hstu_trunc")
    for mode in ("unified", "two_stage")
)
QUANTISED = tuple(
    _case(model, mode="unified", tables=dtype) for model, dtype in (("dssm", "int8"), ("dbmtl", "int4"))
)
LOW = tuple(
    _case(model, mode="unified", precision=precision)
    for model, precision in (("hstu_match", "bf16"), ("hstu_match", "fp16"), ("dlrm_hstu", "bf16"))
)
TF32 = (_case("hstu_match", mode="unified", tf32=True), _case("dlrm_hstu", mode="unified", tf32=True))
MORE = tuple(_case(model, mode="unified") for model in MORE_FAMILIES)
CASES = (*WITH_KERNELS, *IN_BOTH_MODES, *QUANTISED, *LOW, *TF32, *MORE)


def request_of(case: Case, folder: Path) -> dict[str, object]:
    """The spec of a case as JSON; what it makes lies below `folder`."""
    from benchmarks.board.zoo import Case as Cell
    from benchmarks.board.zoo import read_zoo, spec_of

    [model] = [model for model in read_zoo(ZOO).models if model.name == case.model]
    spec = spec_of(model, Cell(case.model, "unified", "fp32"), ZOO.parent, folder)
    told = {**spec.model_dump(mode="json", exclude_unset=True), **dict(case.changes), "device": "cuda"}
    told["passes"] = []
    if "tables" in dict(case.changes):
        told["tables"] = {"dtype": dict(case.changes)["tables"]}
    return told


def made(case: Case, folder: Path, compiler: Path) -> "ExportResult":
    """Export a case below `folder`."""
    from benchmarks.gpu.export_process import export_in_process

    return export_in_process(request_of(case, folder), folder, compiler=compiler)
