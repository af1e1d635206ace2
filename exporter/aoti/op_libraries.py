"""Which custom-op libraries a server must import before it can load a package."""

from collections.abc import Iterable

from torch.export import ExportedProgram

from exporter.errors import CompileFailed

# Operator namespace -> the Python module that registers its operators.
_LIBRARIES = {"fbgemm": "fbgemm_gpu"}
_BUILT_IN = frozenset({"aten", "prim", "prims"})


def op_libraries(programs: Iterable[ExportedProgram]) -> tuple[str, ...]:
    """The modules behind the custom operators of all programs, sorted.

    Raises:
        CompileFailed: an operator whose library is unknown, by name.
    """
    found: set[str] = set()
    for node in (node for program in programs for node in program.graph.nodes):
        namespace = getattr(node.target, "namespace", None)  # operators have one, plain functions do not
        if node.op != "call_function" or namespace is None or namespace in _BUILT_IN:
            continue
        if namespace == "higher_order":
            continue
        if namespace not in _LIBRARIES:
            raise CompileFailed(f"operator {node.target} comes from a library that Slipway does not know")
        found.add(_LIBRARIES[namespace])
    return tuple(sorted(found))
