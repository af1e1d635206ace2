"""Which custom-op libraries a server must import before it can load a package."""

from collections.abc import Iterable, Iterator

from torch.export import ExportedProgram
from torch.fx import Graph

from exporter.errors import CompileFailed

# Operator namespace -> the Python module that registers its operators.
_LIBRARIES = {"fbgemm": "fbgemm_gpu"}
_BUILT_IN = frozenset({"aten", "prim", "prims", "higher_order"})


def op_libraries(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """The modules behind the custom operators of all programs, sorted.

    Raises:
        CompileFailed: an operator whose library is unknown, by name.
    """
    found: set[str] = set()
    for operator, namespace in _custom(program.graph for program in programs):
        if namespace not in _LIBRARIES:
            raise CompileFailed(f"operator {operator} comes from a library that Slipway does not know")
        found.add(_LIBRARIES[namespace])
    return tuple(sorted(found))


def known_libraries(graphs: Iterable[Graph]) -> tuple[str, ...]:
    """The same of graphs, without operators of unknown libraries."""
    return tuple(sorted({_LIBRARIES[name] for _, name in _custom(graphs) if name in _LIBRARIES}))


def _custom(graphs: Iterable[Graph]) -> Iterator[tuple[object, str]]:
    for node in (node for graph in graphs for node in graph.nodes):
        namespace: str = getattr(node.target, "namespace", "")  # plain functions have none
        if node.op == "call_function" and namespace and namespace not in _BUILT_IN:
            yield node.target, namespace
