"""Modules that attempts import late, or some of them only: imported here, forks have them from the begin."""

import encodings.cp437  # noqa: F401  by the first archive
import importlib
import multiprocessing.popen_fork  # noqa: F401  by the first fork

import numpy.ctypeslib
import numpy.ma  # noqa: F401  by numpy's first masked array
import torch.utils.cpp_extension  # noqa: F401  with setuptools, when the compiler is asked for
import torchrec  # noqa: F401  by sharded exports, for seconds

import exporter.shards.rank  # noqa: F401  by sharded exports
from exporter.config.families.registry import FAMILIES
from exporter.models.registry import module_of

for _family in FAMILIES:
    importlib.import_module(module_of(_family))
