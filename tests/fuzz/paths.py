"""URIs that try to leave a team's places, drawn from a seed, and the folders and keys that they try it on."""

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from random import Random
from urllib.parse import quote

from exporter.storage.open import local_path
from exporter.storage.places import Places
from exporter.storage.uris import FileRoots, UriRules, real_path

SECRET, OWN = b"secret", b"own"
FILES = ("f", "model/.metadata", "rows/a.parquet", "x[/f", "é/f", "r[1]/a.parquet", "r1/a.parquet")
OTHERS = ("outside", "roots/other", "roots/team-2")  # folders of the sandbox that hold secrets
LINKS = {  # of the team's folder; a target that begins with "/" starts at the sandbox
    "inside": "out",
    "chain": "inside",
    "rows/linked": "../model",
    "up": "..",
    "loop": "loop",
    "gone": "absent",
    "lost": "/outside/absent",
    "way_out": "/outside",
    "chain_out": "way_out",
    "beside": "/roots/other",
    "x[/out": "/outside",
    "*": "/roots/other",
}
HARMLESS = (
    "out",
    "new",
    "a b",
    "é",
    "e\u0301",
    "y[1]",
    "what?",
    "~",
    "team.",
    "a..b",
    "...",
    "dt=1%2F2",
    "-rf",
)
HARMLESS_INPUTS = {
    "config_uri": ("f", "é/f", "x[/f", "out/../f", "inside/../f"),
    "checkpoint_uri": ("f", "model", "rows", "model/../model/.metadata"),
    "item_input_uri": ("rows", "rows/*.parquet", "rows/[a-z].parquet", "rows/?.parquet", "r[1]/a.parquet"),
}
NAMES = (
    *HARMLESS,
    *(name.rpartition("/")[2] for name in (*LINKS, *FILES)),
    *("rows", "model", "team", "team-2", "other", "outside", "roots", "absent", "TEAM", "Outside"),
    *("..",) * 12,
    *(
        ".",
        "",
        "[",
        "x[",
        "[a]",
        "*.parquet",
        "?",
        "r[1]",
        "r?",
        "**",
        "[!a]",
        "{a,b}",
        " ",
        " ..",
        ".. ",
        "..;",
    ),
    *(
        "%2e%2e",
        "%2E.",
        "..%2f",
        "..%2f..",
        "%252e%252e",
        "%25252e.",
        "..%5c",
        "..\\..",
        "\\..\\",
        "%c0%ae%c0%ae",
    ),
    *(
        "%00",
        "a%00b",
        "%0a",
        "%",
        "%zz",
        "\0",
        "\n",
        "\u202e",
        "\u2025",
        "\uff0e\uff0e",
        "n" * 255,
        "n" * 300,
    ),
    *("a,b", "$HOME", "?versionId=1", "#", "@", "a:b@c", "\U0001d51e", "'", '"', "`id`", "é" * 200),
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """One URI in one field, and the link that is laid between its judgement and the writing, if any."""

    field: str
    uri: str
    is_harmless: bool = False
    link_at: str | None = None  # below the output
    link_to: str = ""  # in the sandbox


@dataclass(frozen=True, kw_only=True)
class Sandbox:
    """Folders of a team and of others, in which each file that is not the team's is a secret."""

    top: Path
    bucket: str

    @property
    def team(self) -> Path:
        return self.top / "roots" / "team"

    @property
    def places(self) -> Places:
        own = (str(self.team), f"s3://{self.bucket}/team")
        return Places(folders=FileRoots(roots=(self.top / "roots",)), rules=UriRules(inputs=own, outputs=own))

    def build(self) -> None:
        """Make the folders of the others."""
        for path in (self.top / place / name for place in OTHERS for name in FILES):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(SECRET)

    def build_team(self) -> None:
        """Make the team's folder anew."""
        shutil.rmtree(self.team, ignore_errors=True)
        for path in (self.team / name for name in (*FILES, "out/f")):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(OWN)
        for name, target in LINKS.items():
            (self.team / name).symlink_to(f"{self.top}{target}" if target.startswith("/") else target)

    def snapshot(self) -> dict[str, tuple[int, ...]]:
        """Return everything that is not the team's, with what a change of it would change."""
        found = {}
        for above, folders, names in os.walk(self.top):
            for name in (*folders, *names):
                status = os.lstat(os.path.join(above, name))  # noqa: PTH118 (thousands of times)
                is_folder = stat.S_ISDIR(status.st_mode)
                changing = () if is_folder else (status.st_ino, status.st_size, status.st_mtime_ns)
                found[f"{above}/{name}"] = (status.st_mode, *changing)
            folders[:] = [name for name in folders if Path(above, name) != self.team]
        return found

    def is_own(self, path: Path) -> bool:
        """Return whether a path leads into the team's folder."""
        return real_path(path).is_relative_to(self.team)

    def lay_link(self, case: Case) -> None:
        """Put a link in place of the output or of a part of the artifact, as whoever writes there could."""
        output = local_path(case.uri)
        if output is None or case.link_at is None:
            return
        place = output.absolute() / case.link_at
        if not self.is_own(place.parent) or place == self.team or ".." in place.parts:
            return
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            if os.path.lexists(place):
                place.rename(self.team / "moved")
            place.symlink_to(self.top / case.link_to)
        except OSError:  # no such name can be made, so no link either
            return


def draw_case(random: Random, sandbox: Sandbox, *, is_remote: bool) -> Case:
    """Draw one case: one in five is harmless, every other is made of whatever may mislead a judge."""
    field = random.choice(("output_uri", "output_uri", "output_uri", *HARMLESS_INPUTS))
    if random.random() < 0.2:
        return _draw_harmless(random, sandbox, field, is_remote=is_remote)
    names = [random.choice(NAMES) for _ in range(random.randint(0, 6))]
    if random.random() < 0.4:
        names = _climb(random)
    start = random.choice(_remote_starts(sandbox) if is_remote else _local_starts(sandbox))
    uri = "/".join((start, *names)) + random.choice(("", "", "", "/", "//", "/.", " ", "%2f"))
    laid = field == "output_uri" and not is_remote and random.random() < 0.4
    return Case(
        field=field,
        uri=uri or " ",
        link_at=random.choice(("", "job", "job/user", "job/user/f")) if laid else None,
        link_to=random.choice((*OTHERS, "outside/f", "outside/absent", "roots/team/loop", "")),
    )


def _climb(random: Random) -> list[str]:
    """Return names that leave the team's folder, if whoever judges them stops at one of them."""
    hides = [random.choice(("x[", "*", "?", "[a]", "inside", "gone", "loop", "é", "rows", "absent", "%"))]
    climb = random.choice(("..",) * 5 + ("%2e%2e", "..%2f", "%252e%252e", "..\\"))
    first = [climb] * random.randint(1, 4)
    return [
        *hides,
        *first,
        random.choice(("other", "outside", "roots/other", "team-2")),
        random.choice(("f", "model", "p")),
    ]


def _draw_harmless(random: Random, sandbox: Sandbox, field: str, *, is_remote: bool) -> Case:
    if field == "output_uri":
        names = "/".join(random.choice(HARMLESS) for _ in range(random.randint(1, 3)))
        first = "" if is_remote else random.choice(("", "", "inside/", "chain/", "out/../", "x[/../"))
    else:
        first, names = "", random.choice(HARMLESS_INPUTS[field])
        if is_remote:
            names = names.replace("out/../", "").replace("inside/../", "").replace("model/../", "")
    if is_remote:
        return Case(field=field, uri=f"s3://{sandbox.bucket}/team/{first}{names}", is_harmless=True)
    place = f"{sandbox.team}/{first}{names}"
    signs = "/*?[]-" if field == "item_input_uri" else "/"
    uri = random.choice(
        (place, f"file://{quote(place, safe=signs)}", f"file://localhost{quote(place, safe=signs)}")
    )
    return Case(field=field, uri=uri, is_harmless=True)


def _local_starts(sandbox: Sandbox) -> tuple[str, ...]:
    team, encoded = str(sandbox.team), quote(str(sandbox.team))
    return (
        *(team,) * 12,
        *(f"{team}/out", f"{team}/x[", f"{team}/rows", f"file://{encoded}"),
        *(f"{team}/", f"/{team}", f"//{team}", f"file:////{team}", f"file://localhost{team}", f"{team}-2"),
        *(
            f"file://{encoded}/%2e%2e",
            f"file://{team.replace('/', '%2f')}",
            f"file://{team}%2f..%2f..%2foutside",
        ),
        *(
            str(sandbox.top),
            str(sandbox.top / "outside"),
            "",
            ".",
            "..",
            "~",
            "/",
            "file://",
            "file:",
            "File://",
        ),
        *(
            f"FILE://{team}",
            f"file://host{team}",
            f"file://{team}@host",
            f" {team}",
            f"{team} ",
            team.upper(),
        ),
    )


def _remote_starts(sandbox: Sandbox) -> tuple[str, ...]:
    bucket = sandbox.bucket
    return (
        *(f"s3://{bucket}/team",) * 6,
        *(f"s3://{bucket}/team-2", f"s3://{bucket}", f"s3://{bucket}//team", f"s3://{bucket}/./team"),
        *(f"s3://{bucket}/other/..%2fteam", f"s3://{bucket}/team%2f..%2fother", f"s3://{bucket}/Team"),
        *(f"S3://{bucket}/team", f"s3://{bucket.upper()}/team", f"s3:///{bucket}/team", f"s3:/{bucket}/team"),
        *(
            f"s3://{bucket}%2fteam",
            f"s3://{bucket}/team?x=/",
            f"s3://x@{bucket}/team",
            f"s3://{bucket}:80/team",
        ),
        *(
            f"s3://{bucket}/*/team",
            f"s3://{bucket}/?eam",
            f"s3://{bucket}/team*",
            " s3://" + bucket + "/team",
        ),
    )
