"""One package called from two threads, each on a stream of its own: `python -m tests.gpu.two_streams`."""

import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor

_CALLS = 100


def main() -> None:
    """Raises where a call gives other numbers than the same call alone."""
    from exporter.aoti.torch_loader import Package
    from exporter.data.rows import named_batch, read_rows
    from exporter.serving.downloaded_tower import download_tower
    from exporter.spec import TowerName
    from tests.gpu.cases import ZOO

    artifact, tower, folder = sys.argv[1:]
    served = download_tower(artifact, TowerName(tower), Path(folder) / "served")
    [link] = served.chain
    package = Package(link.package, runners=2)
    rows = read_rows(str(ZOO.parents[1] / "fixtures/torcheasyrec/data/train.parquet"), served.features)
    batches = [
        {name: tensor.cuda() for name, tensor in named_batch("", rows.take(size), served.plan).inputs.items()}
        for size in (3, 64)
    ]
    batches = [{name: each[name] for name in link.order} for each in batches]
    expected = [package(batch) for batch in batches]
    torch.cuda.synchronize()
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda each: _call_often(package, *each), zip(batches, expected, strict=True)))


def _call_often(package: object, batch: dict[str, Tensor], expected: dict[str, Tensor]) -> None:
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for number in range(_CALLS):
            given = package(batch)  # type: ignore[operator]  # a Package, whose module is imported late
            stream.synchronize()
            for name, value in expected.items():
                if not torch.allclose(given[name], value, rtol=1e-5, atol=1e-6):
                    raise AssertionError(f"call {number}: {name} is another than alone")


if __name__ == "__main__":
    main()
