"""Render a graph as a script that needs only torch: it runs in eager, traces, compiles, runs and compares."""

import base64
import re
import zlib
from collections.abc import Mapping, Sequence
from enum import StrEnum
from types import ModuleType

import torch
from torch import Tensor
from torch.fx import Graph, Node

from exporter.minify.op_recorder import DYNAMIC_AXES

ALLOWED = 1e-4  # difference between eager and compiled that is not taken for the failure
TIGHT = 1e-5  # the same where that finds nothing, as the gate allows in fp32
COMPARED = "output "  # begins the line of each output that a script compares; its number follows
_LONGEST_VALUES = 1 << 16  # bytes of one tensor that a script embeds; larger ones become random numbers
_LONGEST_INTEGERS = 4 << 20  # the same for integers: code may branch on ids and lengths
_MOST_RANDOM = 1 << 22  # random elements of a tensor; the rest is zeros, which take no memory
_MOST_LISTED = 16  # elements of a tensor that is written as a list of numbers


class Step(StrEnum):
    """The steps of a script, in order."""

    EAGER = "eager"
    TRACE = "trace"
    PROMISE = "promise"  # compare the results' layouts with what tracing promised
    COMPILE = "compile"
    RUN = "run"
    COMPARE = "compare"


_PACKAGE_STEPS = (Step.COMPILE, Step.RUN, Step.COMPARE)


def render_script(
    graph: Graph,
    inputs: Mapping[str, object],
    *,
    libraries: Sequence[str],
    title: str,
    promises: bool = False,
    allowed: float = ALLOWED,
) -> str:
    """Return the script for a graph of placeholders, operators and one output; `inputs` are by placeholder.

    Numbers may differ by `allowed` of the largest magnitude among them.

    With `promises` the last step compares the layouts of the results with what tracing promised; otherwise
    the script compiles, runs and compares numbers.
    """
    steps = [Step.EAGER, Step.TRACE, *([Step.PROMISE] if promises else _PACKAGE_STEPS)]
    code = graph.python_code("self", expanded_def=False)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    values = {node.name: inputs[node.name] for node in placeholders}
    used = set(re.findall(r"\w+", code.src))
    return _SCRIPT.format(
        title=title.replace('"""', "'''").replace("\\", "/"),
        imports="\n".join(f"import {library}" for library in libraries),
        names="\n".join(_import_line(name, value) for name, value in code.globals.items() if name in used),
        forward="\n".join(f"    {line}" for line in code.src.strip().splitlines()),
        inputs="\n".join(
            f"    {_literal(value)},  # {_input_comment(name, value)}" for name, value in values.items()
        ),
        dims="\n".join(f"    {_dynamic_shape(node)}," for node in placeholders),
        versions=f"torch {torch.__version__}",
        most_random=_MOST_RANDOM,
        steps=[str(step) for step in steps],
        named_steps=f"{', '.join(steps[:-1])} and {steps[-1]}",
        before_main=_CHECK_LAYOUT if promises else "",
        allowed=allowed,
        after_trace=_PROMISE_STEP if promises else _PACKAGE_STEPS_CODE,
    )


def _import_line(name: str, value: object) -> str:
    """Return the line that defines a name which the graph's code uses."""
    if name in {"inf", "nan"}:
        return f'{name} = float("{name}")'
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"from {module} import {own} as {name}" if module != "builtins" else f"{name} = {own}"


def is_randomised(value: object) -> bool:
    """Return whether a script fills this tensor with random numbers because it is too large to embed."""
    if not isinstance(value, Tensor):
        return False
    is_integer = not value.dtype.is_floating_point and not value.dtype.is_complex
    size = value.numel() * value.element_size()
    return size > (_LONGEST_INTEGERS if is_integer else _LONGEST_VALUES)


def _input_comment(name: str, value: object) -> str:
    return f"{name}: random numbers, too large to embed" if is_randomised(value) else name


def _literal(value: object) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    dtype, size, stride = value.dtype, tuple(value.shape), tuple(value.stride())
    device = "" if value.device.type == "cpu" else f', device="{value.device}"'
    if value.numel() <= _MOST_LISTED and dtype is not torch.bfloat16:
        literal = f"torch.tensor({value.tolist()}, dtype={dtype}).reshape({size})"
    elif not is_randomised(value):
        raw = value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        packed = base64.b64encode(zlib.compress(raw, 9)).decode()
        literal = f'unpack("{packed}", {dtype}, {size})'
    else:
        literal = f"random_numbers({dtype}, {size}, {stride})"
    if not device and (value.is_contiguous() or is_randomised(value)):
        return literal
    return f"torch.empty_strided({size}, {stride}, dtype={dtype}{device}).copy_({literal})"


def _dynamic_shape(node: Node) -> str:
    """Return the entry of `dynamic_shapes` by which sizes that were dynamic stay dynamic."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return "None"
    if DYNAMIC_AXES in node.meta:  # a recording: it may fail only because the axis is dynamic
        return "{" + ", ".join(f"{axis}: torch.export.Dim.DYNAMIC" for axis in node.meta[DYNAMIC_AXES]) + "}"
    axes = [axis for axis, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]
    return "{" + ", ".join(f"{axis}: torch.export.Dim.AUTO" for axis in axes) + "}"


_SCRIPT = '''"""{title}

Runs with {versions} and no other file: python smallest.py [LAST_STEP], which is one of
{named_steps}.
"""

import base64
import mmap
import sys
import tempfile
import warnings
import zlib

import torch
import torch._inductor
import torch.fx.experimental._config as sizes
{imports}
{names}

STEPS = {steps}
ALLOWED = {allowed}  # difference of the compiled program, as a fraction of the largest magnitude
LAZY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, which older Pythons do not define


def unpack(text, dtype, size):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=dtype).reshape(size)


def random_numbers(dtype, size, stride):
    """Random numbers at the start, zeros after them: pages that are never written take no memory."""
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    values = torch.frombuffer(mmap.mmap(-1, length * dtype.itemsize, flags=LAZY), dtype=dtype)
    first, generator = values[:{most_random}], torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        first.copy_(torch.rand(len(first), generator=generator))
    else:
        first.copy_(torch.randint(0, 2, (len(first),), generator=generator))
    return values.as_strided(size, stride)


class Smallest(torch.nn.Module):
{forward}


INPUTS = (
{inputs}
)
DIMS = (
{dims}
)


def step(name):
    if STEPS.index(name) > STEPS.index(sys.argv[1] if len(sys.argv) > 1 else STEPS[-1]):
        print("step: none, stopped as asked", flush=True)
        sys.exit(0)
    print("step:", name, flush=True)


{before_main}def main():
    warnings.simplefilter("ignore")
    module = Smallest().eval()
    with torch.no_grad(), sizes.patch(backed_size_oblivious=True):  # sizes 0 and 1 stay dynamic
        step("eager")
        expected = module(*INPUTS)
        step("trace")
        program = torch.export.export(module, INPUTS, dynamic_shapes=DIMS, strict=False)
{after_trace}    print("step: all passed", flush=True)


if __name__ == "__main__":
    main()
'''

_CHECK_LAYOUT = """def check_layout(promised, real):
    if promised.dtype != real.dtype:
        raise AssertionError(f"dtype is {real.dtype}, promised {promised.dtype}")
    sizes = tuple(int(size) for size in promised.shape)
    if sizes != tuple(real.shape):
        raise AssertionError(f"size is {tuple(real.shape)}, promised {sizes}")
    strides = tuple(int(stride) for stride in promised.stride())
    if real.numel() and any(s != r for s, r, n in zip(strides, real.stride(), sizes) if n > 1):
        raise AssertionError(f"stride is {real.stride()}, promised {strides}")


"""
_PROMISE_STEP = """        step("promise")
        for promised, real in zip(program.graph.output_node().args[0], expected, strict=True):
            check_layout(promised.meta["val"], real)
"""
_PACKAGE_STEPS_CODE = """        step("compile")
        with tempfile.TemporaryDirectory() as folder:
            path = torch._inductor.aoti_compile_and_package(program, package_path=folder + "/smallest.pt2")
            step("run")
            actual = torch._inductor.aoti_load_package(path)(*INPUTS)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # raises errors of the GPU
            step("compare")
            for number, (from_eager, from_package) in enumerate(zip(expected, actual, strict=True)):
                print("output", number, flush=True)
                finite = from_eager[from_eager.isfinite()]
                scale = float(finite.abs().max()) if finite.is_floating_point() and finite.numel() else 0.0
                torch.testing.assert_close(from_package, from_eager, rtol=0, atol=ALLOWED * scale)
"""
