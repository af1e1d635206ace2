"""Choices of an export request that decide how a tower is built, and what it computes in."""

from dataclasses import dataclass, field

from exporter.dtypes import Kernel, Precision
from exporter.options.tables import Tables
from exporter.spec import IdWeights


@dataclass(frozen=True, kw_only=True)
class BuildOptions:
    """Options of one tower, decided: nothing is left to a default of the pipeline config."""

    id_weights: IdWeights = IdWeights.APPLY  # whether the weights of weighted ids scale their rows
    tables: Tables = field(default_factory=Tables)  # dtypes and layout as packaged
    precision: Precision = Precision.FP32  # precision of everything but the tables
    kernel: Kernel = Kernel.PYTORCH  # kernels of the HSTU layers on CUDA; a CPU has one of its own
    tf32: bool = False  # True: products of fp32 matrices on CUDA may round their factors to TF32
