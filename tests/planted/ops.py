"""Operators with a fault each, which scripts of failing cases import."""

import os
import signal
import time

import torch
from torch import Tensor


@torch.library.custom_op("planted::turned", mutates_args=())
def turned(x: Tensor) -> Tensor:
    """Gives its result column by column; its shape rule says row by row."""
    return (x * 2).t().contiguous().t()


@turned.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


@torch.library.custom_op("planted::short", mutates_args=())
def short(x: Tensor) -> Tensor:
    """Gives one row; its shape rule promises a hundred million for every row."""
    return x[:1].clone()


@short.register_fake
def _(x: Tensor) -> Tensor:
    return x.new_empty(x.shape[0] * 100_000_000, x.shape[1])


@torch.library.custom_op("planted::endless", mutates_args=())
def endless(x: Tensor) -> Tensor:
    """Never comes back."""
    while True:
        time.sleep(1)


@endless.register_fake
def _(x: Tensor) -> Tensor:
    return torch.empty_like(x)


# The compiler does not know how to write down a list of dtypes.
LIBRARY = torch.library.Library("planted", "FRAGMENT")
LIBRARY.define("uncompilable(Tensor x, ScalarType[] dtypes) -> Tensor")
LIBRARY.impl("uncompilable", lambda x, dtypes: x * 2, "CPU")
torch.library.register_fake("planted::uncompilable", lambda x, dtypes: torch.empty_like(x))


@torch.library.custom_op("planted::untraceable", mutates_args=())
def untraceable(x: Tensor) -> Tensor:
    """Its shape rule never comes back."""
    return x * 2


@untraceable.register_fake
def _(x: Tensor) -> Tensor:
    while True:
        time.sleep(1)


@torch.library.custom_op("planted::deadly", mutates_args=())
def deadly(x: Tensor) -> Tensor:
    """Its shape rule takes the process with it."""
    return x * 2


@deadly.register_fake
def _(x: Tensor) -> Tensor:
    os.kill(os.getpid(), signal.SIGSEGV)
    return torch.empty_like(x)
