"""A traced program compiled straight into a package, for tests of what is compiled rather than of exports."""

from pathlib import Path

from torch.export import ExportedProgram

from exporter.aoti.compile import compile_code


def compile_package(program: ExportedProgram, path: Path) -> Path:
    """Compile `program` for this CPU into the package at `path`, with the program's own weights."""
    return compile_code(program).assemble(program.state_dict, path).path
