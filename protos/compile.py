"""Compiles the .proto files beside it: python protos/compile.py [top], into top/exporter/config/pb."""

import sys
from pathlib import Path

import grpc_tools
from grpc_tools import protoc

HERE = Path(__file__).parent
WELL_KNOWN = Path(grpc_tools.__file__).parent / "_proto"  # google/protobuf/struct.proto


def compile_protos(top: Path) -> None:
    """Write the module and the stub of every .proto file below `top`, replacing existing ones."""
    package = top / "exporter" / "config" / "pb"
    package.mkdir(parents=True, exist_ok=True)
    for stale in [*package.glob("*_pb2.py"), *package.glob("*_pb2.pyi")]:
        stale.unlink()
    sources = sorted(str(path) for path in HERE.rglob("*.proto"))
    includes = [f"-I{HERE}", f"-I{WELL_KNOWN}"]
    if protoc.main(["protoc", *includes, f"--python_out={top}", f"--pyi_out={top}", *sources]) != 0:
        raise SystemExit("protoc refused protos/; its complaint stands above")
    (package / "__init__.py").write_text('"""Generated from protos/; see protos/compile.py."""\n')


if __name__ == "__main__":
    compile_protos(Path(*sys.argv[1:2]))
