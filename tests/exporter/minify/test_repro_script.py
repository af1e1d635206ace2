"""What a script carries of the failing case, and what it says that it does not."""

import runpy
from pathlib import Path

import torch
from torch import Tensor
from torch.fx import Graph

from exporter.minify.repro_script import render_script


def written(inputs: dict[str, Tensor]) -> str:
    graph = Graph()
    taken = [graph.placeholder(name) for name in inputs]
    for node, value in zip(taken, inputs.values(), strict=True):
        node.meta["val"] = value
    graph.output(tuple(graph.call_function(torch.ops.aten.neg.default, (node,)) for node in taken))
    return render_script(graph, inputs, libraries=(), title="a test")


def test_integers_are_carried_whole_and_what_is_drawn_is_said(tmp_path: Path) -> None:
    ids, weights = torch.arange(50_000) % 977, torch.rand(50_000, 2)
    (tmp_path / "s.py").write_text(written({"ids": ids, "weights": weights, "turned": weights.t()}))
    script = runpy.run_path(str(tmp_path / "s.py"), run_name="read")
    given_ids, given_weights, turned = script["INPUTS"]
    assert torch.equal(given_ids, ids)
    assert given_weights.shape == weights.shape and turned.stride() == weights.t().stride()
    text = (tmp_path / "s.py").read_text()
    assert (
        "# ids\n" in text
        and "# weights: random numbers, too large" in text
        and "# turned: random numbers" in text
    )


class Elsewhere(Tensor):
    """Says that it is on another device than this machine has, and holds its values here."""

    device = torch.device("meta")


def test_a_tensor_is_made_where_it_was(tmp_path: Path) -> None:
    given = (torch.arange(5), torch.rand(3, 2).t(), torch.rand(100, 7), torch.rand(50_000, 2).t())
    inputs: dict[str, Tensor] = {
        f"input_{place}": each.as_subclass(Elsewhere) for place, each in enumerate(given)
    }
    (tmp_path / "s.py").write_text(written(inputs))
    made = runpy.run_path(str(tmp_path / "s.py"), run_name="read")["INPUTS"]
    assert [each.device.type for each in made] == ["meta"] * 4
    assert [(each.shape, each.stride(), each.dtype) for each in made] == [
        (each.shape, each.stride(), each.dtype) for each in given
    ]
