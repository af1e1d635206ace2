"""The one build step that pyproject.toml cannot express: protos/ become Python modules in the wheel."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

ROOT = Path(__file__).parent


class BuildWithProtos(build_py):
    """Copies the packages, then compiles protos/ into the copy (or into the tree, if that is installed)."""

    def run(self) -> None:
        super().run()
        top = ROOT if self.editable_mode else Path(self.build_lib)
        compile_protos = runpy.run_path(str(ROOT / "protos" / "compile.py"))["compile_protos"]
        compile_protos(top)


setup(cmdclass={"build_py": BuildWithProtos})
