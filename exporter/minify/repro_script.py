"""A graph as a script that runs with torch alone: in eager, traced, compiled, run and compared."""

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

_LONGEST_VALUES = 1 << 16  # bytes of one tensor that a script carries; larger ones are drawn
_LONGEST_INTEGERS = 4 << 20  # the same for integers: ids and lengths, by which code goes one way or another
_MOST_RANDOM = 1 << 22  # elements; what is behind them is zero, and takes no memory
_MOST_LISTED = 16  # elements that are written as numbers


class Step(StrEnum):
    """What a script does, in this order."""

    EAGER = "eager"
    TRACE = "trace"
    PROMISE = "promise"  # the results' layouts are what tracing says they are
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
) -> str:
    """The script for a graph of placeholders, operators and one output; `inputs` by placeholder.

    With `promises` it ends by holding the layouts of its results against what tracing says of them; else it
    compiles, runs and compares.
    """
    steps = [Step.EAGER, Step.TRACE, *([Step.PROMISE] if promises else _PACKAGE_STEPS)]
    code = graph.python_code("self", expanded_def=False)
    placeholders = [node for node in graph.nodes if node.op == "placeholder"]
    given = {node.name: inputs[node.name] for node in placeholders}
    used = set(re.findall(r"\w+", code.src))
    return _SCRIPT.format(
        title=title.replace('"""', "'''").replace("\\", "/"),
        imports="\n".join(f"import {library}" for library in libraries),
        names="\n".join(_import_line(name, value) for name, value in code.globals.items() if name in used),
        forward="\n".join(f"    {line}" for line in code.src.strip().splitlines()),
        inputs="\n".join(
            f"    {_literal(value)},  # {_input_comment(name, value)}" for name, value in given.items()
        ),
        dims="\n".join(f"    {_dynamic_shape(node)}," for node in placeholders),
        versions=f"torch {torch.__version__}",
        most_drawn=_MOST_RANDOM,
        steps=[str(step) for step in steps],
        named_steps=f"{', '.join(steps[:-1])} and {steps[-1]}",
        before_main=_CHECK_LAYOUT if promises else "",
        after_trace=_PROMISE_STEP if promises else _PACKAGE_STEPS_CODE,
    )


def _import_line(name: str, value: object) -> str:
    """How a script gets a name that the graph's code uses."""
    if name in {"inf", "nan"}:
        return f'{name} = float("{name}")'
    if isinstance(value, ModuleType):
        return f"import {value.__name__} as {name}"
    module, own = getattr(value, "__module__", None), getattr(value, "__qualname__", None)
    return f"from {module} import {own} as {name}" if module != "builtins" else f"{name} = {own}"


def is_randomised(value: object) -> bool:
    """Whether a script draws this tensor: it is too large to carry."""
    if not isinstance(value, Tensor):
        return False
    counts = not value.dtype.is_floating_point and not value.dtype.is_complex
    size = value.numel() * value.element_size()
    return size > (_LONGEST_INTEGERS if counts else _LONGEST_VALUES)


def _input_comment(name: str, value: object) -> str:
    return f"{name}: drawn, too large to keep as it was" if is_randomised(value) else name


def _literal(value: object) -> str:
    if not isinstance(value, Tensor):
        return repr(value)
    dtype, size, stride = value.dtype, tuple(value.shape), tuple(value.stride())
    device = "" if value.device.type == "cpu" else f', device="{value.device}"'
    if value.numel() <= _MOST_LISTED and dtype is not torch.bfloat16:
        made = f"torch.tensor({value.tolist()}, dtype={dtype}).reshape({size})"
    elif not is_randomised(value):
        raw = value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes()
        packed = base64.b64encode(zlib.compress(raw, 9)).decode()
        made = f'packed("{packed}", {dtype}, {size})'
    else:
        made = f"drawn({dtype}, {size}, {stride})"
    if not device and (value.is_contiguous() or is_randomised(value)):
        return made
    return f"torch.empty_strided({size}, {stride}, dtype={dtype}{device}).copy_({made})"


def _dynamic_shape(node: Node) -> str:
    """Sizes that were dynamic stay so."""
    value = node.meta.get("val")
    if not isinstance(value, Tensor):
        return "None"
    if DYNAMIC_AXES in node.meta:  # a recording: to be dynamic is part of what fails
        return "{" + ", ".join(f"{axis}: torch.export.Dim.DYNAMIC" for axis in node.meta[DYNAMIC_AXES]) + "}"
    axes = [axis for axis, size in enumerate(value.shape) if isinstance(size, torch.SymInt)]
    return "{" + ", ".join(f"{axis}: torch.export.Dim.AUTO" for axis in axes) + "}"


_SCRIPT = '''"""{title}

Runs with {versions} and no file besides: python smallest.py [the last step to take, of
{named_steps}].
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
LAZY = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | 0x4000  # MAP_NORESERVE, which not every Python names


def packed(text, dtype, size):
    return torch.frombuffer(bytearray(zlib.decompress(base64.b64decode(text))), dtype=dtype).reshape(size)


def drawn(dtype, size, stride):
    """Random numbers to begin with, zeros behind them: pages that nobody writes to take no memory."""
    length = 1 + sum((n - 1) * step for n, step in zip(size, stride, strict=True))
    made = torch.frombuffer(mmap.mmap(-1, length * dtype.itemsize, flags=LAZY), dtype=dtype)
    first, generator = made[:{most_drawn}], torch.Generator().manual_seed(0)
    if dtype.is_floating_point:
        first.copy_(torch.rand(len(first), generator=generator))
    else:
        first.copy_(torch.randint(0, 2, (len(first),), generator=generator))
    return made.as_strided(size, stride)


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
        print("step: none, as asked", flush=True)
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
{after_trace}    print("step: all, without a failure", flush=True)


if __name__ == "__main__":
    main()
'''

_CHECK_LAYOUT = """def held(promised, real):
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
            held(promised.meta["val"], real)
"""
_PACKAGE_STEPS_CODE = """        step("compile")
        with tempfile.TemporaryDirectory() as folder:
            path = torch._inductor.aoti_compile_and_package(program, package_path=folder + "/smallest.pt2")
            step("run")
            given = torch._inductor.aoti_load_package(path)(*INPUTS)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()  # raises what has gone wrong on a GPU
            step("compare")
            for wanted, real in zip(expected, given, strict=True):
                torch.testing.assert_close(real, wanted, rtol=1e-4, atol=1e-5)
"""
