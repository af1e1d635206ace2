"""A package for a GPU, read and not run: the code of a call, its kernels, constants and metadata."""

import json
import re
import struct
import subprocess
import zipfile
from dataclasses import asdict, dataclass
from functools import cached_property
from pathlib import Path, PurePath
from typing import Final

import triton

TARGET: Final = "sm_90"  # what all of them are built for

_CONSTANT = re.compile(r"^\s*constants_info_\[(\d+)\]\.(\w+) = (.*);$", re.MULTILINE)
_LOADED = re.compile(r'kernels_\.(\w+) = loadKernel\("([^"]+)", "(\w+)"')
_LAUNCHED = re.compile(r"kernel_args_\[\] = \{([^}]*)\};\s*launchKernel\(kernels_\.(\w+),")
_CALLED = re.compile(r"^    call_(\w+)\(", re.MULTILINE)
# What hands the host a number of the device, and what makes it wait for the device otherwise.
_WAITS = re.compile(
    r"\b(aoti_torch_item_\w+|\w*_local_scalar_dense\w*|\w*nonzero\w*|\w*masked_select\w*"
    r"|cu(?:da)?(?:Stream|Device|Event|Ctx)Synchronize|cudaMemcpy)\("
)
# Something of a call that is on the host: a tensor, or a copy to it.
_ON_HOST = re.compile(r"cached_torch_device_type_cpu")
_MADE_UP = re.compile(r"generate_example_value\(\(([\d, ]*)\)")
_CUDA, _FLAGS_AT = 190, 48  # of a kernel's ELF header: its machine, and the byte where it says which GPU

Shape = tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Kernel:
    """A kernel as the code of a package loads it."""

    symbol: str
    file: str
    arguments: int  # that the code launches it with


@dataclass(frozen=True, kw_only=True)
class Constant:
    """A tensor that a loaded package holds."""

    name: str
    shape: Shape
    is_folded: bool  # computed when the package is loaded, and kept beside what it is computed from


@dataclass(frozen=True, kw_only=True)
class Built:
    """A package, and what is known of it from making it."""

    tower: str
    package: str
    architecture: str
    op_libraries: tuple[str, ...]
    tables: dict[str, Shape]
    looks_up: bool  # in tables
    attention: dict[str, int]  # layers of it, by the name of what computes them: pytorch, triton
    tuning: str  # the code by which kernels are tuned

    @classmethod
    def of(cls, line: str) -> "Built":
        """Read a line that `to_line` wrote."""
        fields = json.loads(line)
        tables = {name: tuple(shape) for name, shape in fields["tables"].items()}
        return cls(**{**fields, "tables": tables, "op_libraries": tuple(fields["op_libraries"])})

    def to_line(self) -> str:
        """Return the package as one line of JSON."""
        return json.dumps(asdict(self))

    @cached_property
    def files(self) -> dict[str, bytes]:
        """The members of the archive by their last names, weights left out."""
        with zipfile.ZipFile(self.package) as archive:
            return {
                PurePath(name).name: archive.read(name)
                for name in archive.namelist()
                if not name.endswith(".blob")
            }

    def named(self, ending: str) -> dict[str, bytes]:
        """The files whose names end so."""
        return {name: data for name, data in self.files.items() if name.endswith(ending)}

    @cached_property
    def wrapper(self) -> str:
        """The code of a call."""
        [code] = self.named(".wrapper.cpp").values()
        return code.decode()

    @cached_property
    def metadata(self) -> dict[str, str]:
        """The metadata that a loader reads before it loads the library."""
        [told] = self.named(".wrapper_metadata.json").values()
        return dict(json.loads(told))

    @cached_property
    def kernels(self) -> list[Kernel]:
        """All that the code loads."""
        arguments = {variable: given.count("&") for given, variable in _LAUNCHED.findall(self.wrapper)}
        return [
            Kernel(symbol=symbol, file=PurePath(path).name, arguments=arguments[variable])
            for variable, path, symbol in _LOADED.findall(self.wrapper)
        ]

    def calls(self, symbol: str) -> int:
        """Count the launches of the kernel of this name in one call."""
        return sum(re.fullmatch(rf"{symbol}_\d+", each) is not None for each in _CALLED.findall(self.wrapper))

    @cached_property
    def constants(self) -> list[Constant]:
        rows: dict[str, dict[str, str]] = {}
        for index, field, value in _CONSTANT.findall(self.wrapper):
            rows.setdefault(index, {})[field] = value
        return [
            Constant(
                name=json.loads(row["original_fqn"]),
                shape=_sizes(row["shape"].strip("{}")),
                is_folded=row["from_folded"] == "true",
            )
            for row in rows.values()
        ]

    @property
    def waits(self) -> list[str]:
        """The statements that make the host wait in a call."""
        return [*_WAITS.findall(self.wrapper), *_ON_HOST.findall(self.wrapper)]

    @property
    def made_up(self) -> list[Shape]:
        """The sizes of what kernels are tuned on that is neither an input nor a weight."""
        return [_sizes(found) for found in _MADE_UP.findall(self.tuning)]

    def unpacked(self, folder: Path) -> Path:
        """The library in it, as a file beside its kernels."""
        for name, data in self.files.items():
            (folder / name).write_bytes(data)
        [library] = self.named(".wrapper.so")
        return folder / library


def gpu_of(kernel: bytes) -> int:
    """The architecture that a kernel's binary is for: 90."""
    machine, flags = struct.unpack_from("<H", kernel, 18)[0], struct.unpack_from("<I", kernel, _FLAGS_AT)[0]
    assert machine == _CUDA, machine
    return int(flags & 0xFF)


def parameters_of(kernel: Path) -> int:
    """Return the number of arguments that a kernel's binary takes."""
    command = [triton.knobs.nvidia.cuobjdump.path, "-elf", str(kernel)]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    return told.count("EIATTR_KPARAM_INFO")


def _sizes(told: str) -> Shape:
    """`4L, 2L` as numbers."""
    return tuple(int(size.strip().rstrip("L")) for size in told.split(",") if size.strip())
