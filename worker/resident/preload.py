"""Modules that attempts import late, or some of them only: imported here, forks have them from the begin."""

import numpy.ma  # noqa: F401  by numpy's first masked array
import torch.utils.cpp_extension  # noqa: F401  with setuptools, when the compiler is asked for
import torchrec  # noqa: F401  by sharded exports, for seconds

import exporter.shards.rank  # noqa: F401  by sharded exports
