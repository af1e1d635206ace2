"""Describe a program's outputs as manifest entries."""

from torch import SymInt
from torch.export import ExportedProgram

from exporter.dims.plan import DimPlan
from exporter.dims.torch_dims import check_program
from exporter.manifest import TensorEntry


def output_entries(program: ExportedProgram, plan: DimPlan) -> tuple[TensorEntry, ...]:
    """Return an entry for each output of the program; sizes that are planned dims are given by name."""
    dims = {symbol: dim for dim, symbol in check_program(program, plan).items()}
    names = list(program.call_spec.out_spec.context)
    nodes = {node.name: node for node in program.graph.nodes}
    values = [nodes[str(name)].meta["val"] for name in program.graph_signature.user_outputs]
    return tuple(
        TensorEntry(
            name=name,
            dtype=str(value.dtype).removeprefix("torch."),
            shape=tuple(
                dims.get(str(size), str(size)) if isinstance(size, SymInt) else size for size in value.shape
            ),
        )
        for name, value in zip(names, values, strict=True)
    )
