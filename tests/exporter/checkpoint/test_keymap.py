import subprocess
import sys

from exporter.checkpoint.keymap import checkpoint_names, unexpected_names


def test_a_model_name_is_found_behind_the_prefix() -> None:
    assert checkpoint_names(["item_tower.w"], "model.") == {"item_tower.w": "model.item_tower.w"}
    assert checkpoint_names(["model.w"], "") == {"model.w": "model.w"}


def test_a_name_without_the_prefix_is_unexpected() -> None:
    assert unexpected_names(["model.a", "model.b", "a"], {"a"}, "model.") == ["a", "model.b"]


def test_names_are_mapped_without_torch() -> None:
    program = "import sys, exporter.checkpoint.keymap; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
