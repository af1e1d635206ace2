"""Find the custom-op libraries that a server must import before it can load a package.

Operators made with `torch.library.triton_op` and those of `CPU_KERNELS` need no import there, as the compiler
puts their kernels into the package. A process that runs a program as it was traced needs their modules all
the same.
"""

from collections.abc import Callable, Iterable, Iterator

from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule

from exporter.aoti.torch_private import defining_module, is_compiled_in
from exporter.errors import CompileFailed, InvalidArtifact
from exporter.families.own_module import PREFIX
from exporter.models.hstu.kernels.jagged_attention import CPU_KERNELS

# Operator namespace -> the Python module that registers its operators.
_LIBRARIES = {"fbgemm": "fbgemm_gpu"}
_BUILT_IN = frozenset({"aten", "prim", "prims", "higher_order"})


def find_op_libraries(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """Return the modules that register the custom operators of all packages, sorted.

    They are the modules of known libraries, and those that define operators by `torch.library.custom_op`.

    Raises:
        CompileFailed: an operator belongs to an unknown library and was not made with `custom_op`, or it was
            made in a file of the caller's own.
    """
    found: set[str] = set()
    for operator in _custom_operators(all_graphs(programs)):
        if _is_compiled_in(operator):
            continue
        library = _library_of(operator)
        if library is None:
            raise CompileFailed(
                f"operator {operator} comes from a library that Slipway does not know",
                hint="make it with torch.library.custom_op in a module that can be imported",
            )
        if library.startswith(PREFIX):
            raise CompileFailed(
                f"operator {operator} is made in a file that no server could import",
                hint="offer the family by an installed package: docs/families.md",
            )
        found.add(library)
    return tuple(sorted(found))


def all_graphs(programs: Iterable[ExportedProgram]) -> Iterator[Graph]:
    """Yield every graph of the programs; code under autocast is a graph inside another."""
    for program in programs:
        for module in program.graph_module.modules():
            if isinstance(module, GraphModule):
                yield module.graph


def find_known_libraries(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """Return the modules that running the graphs uncompiled needs, also those of compiled-in operators.

    Operators of unknown libraries are left out.
    """
    return tuple(
        sorted({library for operator in _custom_operators(graphs) if (library := _library_of(operator))})
    )


def find_compiled_in_modules(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """Return the modules of operators whose kernels the compiler puts into the package."""
    found = {defining_module(operator) for operator in _custom_operators(graphs) if _is_compiled_in(operator)}
    return tuple(sorted(module for module in found if module))


def require_trusted(libraries: Iterable[str], trusted: Callable[[], Iterable[str]], where: str) -> None:
    """Raise InvalidArtifact if an artifact needs a module outside the `trusted` modules' packages.

    Importing a module that a manifest names runs code which the writer of the manifest chose.
    """
    foreign = [library for library in libraries if library not in _LIBRARIES.values()]
    packages = {name.partition(".")[0] for name in trusted()} if foreign else set()
    for library in foreign:
        if library.partition(".")[0] not in packages:
            raise InvalidArtifact(
                f"{where} needs the operators of {library}, which belongs to no listed family",
                hint="if you trust the family's package, install it and name the family in SLIPWAY_FAMILIES",
                where=where,
            )


def _is_compiled_in(operator: OpOverload) -> bool:
    return is_compiled_in(operator) or operator.name().partition(".")[0] in CPU_KERNELS


def _library_of(operator: OpOverload) -> str | None:
    return _LIBRARIES.get(operator.namespace) or defining_module(operator)


def _custom_operators(graphs: Iterable[Graph]) -> Iterator[OpOverload]:
    for node in (node for graph in graphs for node in graph.nodes):
        if isinstance(node.target, OpOverload) and node.target.namespace not in _BUILT_IN:
            yield node.target
