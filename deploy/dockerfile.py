"""Read Dockerfiles and follow their instructions without an engine: a folder replaces each stage's root.

Instructions that need a root file system (packages of the distribution, users) are skipped and listed.
"""

import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_INSTRUCTION = re.compile(r"^([A-Z]+)\s+(.*)$", re.DOTALL)
_MOUNT = re.compile(r"--mount=\S+\s+")
_NEEDS_ROOT = re.compile(r"\b(apt-get|groupadd|useradd)\b")
_OURS = re.compile(r"(?<![\w./])/(opt|build|scratch|var/lib/slipway|var/cache)(?=[/:\s]|$)")
CLEAN = ("env", "-u", "PYTHONPATH", "-u", "PYTHONHOME")  # variables that an image would not have
_PATH = f"{Path(sys.executable).parent}:/usr/local/bin:/usr/bin:/bin"
_GENERATED = "exporter/config/pb"  # excluded from the context by .dockerignore, as caches are


@dataclass(frozen=True)
class Instruction:
    """One instruction of a Dockerfile, with continued lines joined."""

    word: str
    rest: str


@dataclass(frozen=True)
class BuildStage:
    """The instructions from one FROM to the next."""

    name: str
    base: str
    instructions: tuple[Instruction, ...]


def stages_of(text: str) -> Mapping[str, BuildStage]:
    """Return the stages by name; the last one, if unnamed, is `final`."""
    stages: dict[str, BuildStage] = {}
    name, base, found = "", "", list[Instruction]()
    for instruction in _instructions(text):
        if instruction.word == "FROM":
            if base:
                stages[name] = BuildStage(name, base, tuple(found))
            base, _, name = instruction.rest.partition(" AS ")
            name, found = name or "final", []
        else:
            found.append(instruction)
    return {**stages, name: BuildStage(name, base, tuple(found))}


def _instructions(text: str) -> Iterator[Instruction]:
    lines = "\n".join(line for line in text.splitlines() if not line.startswith("#"))
    for line in lines.replace("\\\n", " ").splitlines():
        if match := _INSTRUCTION.match(line.strip()):
            yield Instruction(match[1], match[2])


@dataclass(frozen=True, kw_only=True)
class Follower:
    """Follows the stages of one Dockerfile below a folder."""

    stages: Mapping[str, BuildStage]
    context: Path
    folder: Path
    left_out: list[str]  # instructions that were skipped
    environments: dict[str, dict[str, str]] = field(
        default_factory=dict
    )  # variables of the stages that were followed

    def follow(self, name: str) -> Path:
        """Build the root of a stage and of the stages that it copies from; return its folder."""
        root = self.folder / name
        if root.exists():
            return root
        stage = self.stages[name]
        root.mkdir(parents=True)
        if stage.base in self.stages:
            shutil.copytree(self.follow(stage.base), root, symlinks=True, dirs_exist_ok=True)
        environment = {"PATH": _PATH, **self.environments.get(stage.base, {})}
        self.environments[name] = environment
        here = root
        for instruction in stage.instructions:
            match instruction.word:
                case "ENV":
                    for pair in shlex.split(instruction.rest):
                        variable, _, value = pair.partition("=")
                        environment[variable] = value.replace("$PATH", environment["PATH"])
                case "WORKDIR":
                    here = root / instruction.rest.lstrip("/")
                    here.mkdir(parents=True, exist_ok=True)
                case "COPY":
                    self._copy(instruction.rest, root, here)
                case "RUN":
                    self._run(instruction.rest, root, here, environment)
        return root

    def _copy(self, rest: str, root: Path, here: Path) -> None:
        words = rest.split()
        origin = self.context
        if words[0].startswith("--from="):
            origin = self.follow(words.pop(0).removeprefix("--from="))
        *sources, last = words
        for source in sources:
            found = origin / source.lstrip("/")
            into = root / last.lstrip("/") if last.startswith("/") else here / last
            if found.is_dir():
                shutil.copytree(found, into, symlinks=True, dirs_exist_ok=True, ignore=self._ignore)
            else:
                target = into / found.name if last.endswith("/") or into.is_dir() else into
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(found, target)

    def _ignore(self, folder: str, names: list[str]) -> set[str]:
        generated = self.context / _GENERATED
        return {name for name in names if name == "__pycache__" or Path(folder, name) == generated}

    def _run(self, rest: str, root: Path, here: Path, environment: Mapping[str, str]) -> None:
        command = " ".join(_MOUNT.sub("", rest).split())
        if _NEEDS_ROOT.search(command):
            self.left_out.append(command)
            return
        variables = [f"{name}={_in_root(value, root)}" for name, value in environment.items()]
        in_root = _in_root(command, root)
        subprocess.run([*CLEAN, "PIP_QUIET=1", *variables, "bash", "-euc", in_root], cwd=here, check=True)


def _in_root(text: str, root: Path) -> str:
    """Move the image's folders in a command or value below `root`."""
    return _OURS.sub(lambda match: f"{root}/{match[1]}", text)
