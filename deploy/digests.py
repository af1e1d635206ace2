"""Ask the registries for the images that are pinned by digest: `python -m deploy.digests`.

Each digest must exist, and match what the registry sends for it. If a tag points to another digest by now,
that is reported but is no failure, because the pin decides. Tests do not run this: it needs the registries.
"""

import hashlib
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import httpx
import yaml

ROOT = Path(__file__).parents[1]
_PINNED = re.compile(r"(?:^FROM |image: (?:&\w+ )?)([\w./:-]+):([\w.-]+)@(sha256:[0-9a-f]{64})", re.MULTILINE)
_MANIFESTS = (
    "application/vnd.oci.image.index.v1+json",
    "application/vnd.docker.distribution.manifest.list.v2+json",
    "application/vnd.oci.image.manifest.v1+json",
    "application/vnd.docker.distribution.manifest.v2+json",
)
_DOCKER_HUB = "registry-1.docker.io"
_TIMEOUT_S = 20.0


@dataclass(frozen=True, order=True)
class PinnedImage:
    """A pinned image."""

    repository: str
    tag: str
    digest: str

    @property
    def place(self) -> tuple[str, str]:
        """Return the registry's host and the repository's name there."""
        host, slash, rest = self.repository.partition("/")
        if slash and ("." in host or ":" in host):
            return host, rest
        return _DOCKER_HUB, self.repository if slash else f"library/{self.repository}"


def pinned_images() -> tuple[PinnedImage, ...]:
    """Return the images of the Dockerfiles, of compose.yaml and of the chart."""
    files = [*sorted((ROOT / "docker").glob("*.Dockerfile")), ROOT / "compose.yaml"]
    found = {PinnedImage(*match) for path in files for match in _PINNED.findall(path.read_text())}
    chart = yaml.safe_load((ROOT / "deploy" / "helm" / "slipway" / "values.yaml").read_text())
    images = [each for each in chart["images"].values() if isinstance(each, dict) and each["digest"]]
    found |= {PinnedImage(each["repository"], each["tag"], each["digest"]) for each in images}
    return tuple(sorted(found))


class NotThere(Exception):
    """A registry does not have a pinned image."""


def check(image: PinnedImage, registries: Mapping[str, str] = MappingProxyType({})) -> str:
    """Ask the image's registry, and return the result as a line.

    Raises:
        NotThere: the registry lacks the digest, or sends something else for it.
        httpx.HTTPError: the registry cannot be reached.
    """
    host, name = image.place
    with httpx.Client(
        base_url=registries.get(host, f"https://{host}"), timeout=_TIMEOUT_S, follow_redirects=True
    ) as client:
        manifest = _manifest(client, name, image.digest)
        found = f"sha256:{hashlib.sha256(manifest.content).hexdigest()}"
        if found != image.digest:
            raise NotThere(f"{host} sends {found} for it")
        tag = _manifest(client, name, image.tag)
        means = f"sha256:{hashlib.sha256(tag.content).hexdigest()}"
    return "there" if means == image.digest else f"there; the tag {image.tag} means {means} by now"


def _manifest(client: httpx.Client, name: str, reference: str) -> httpx.Response:
    path, headers = f"/v2/{name}/manifests/{reference}", {"Accept": ", ".join(_MANIFESTS)}
    answer = client.get(path, headers=headers)
    if answer.status_code == httpx.codes.UNAUTHORIZED:
        answer = client.get(
            path, headers={**headers, "Authorization": f"Bearer {_fetch_token(client, answer)}"}
        )
    if answer.status_code == httpx.codes.NOT_FOUND:
        raise NotThere(f"{client.base_url.host} has no {name}@{reference}")
    return answer.raise_for_status()


def _fetch_token(client: httpx.Client, refusal: httpx.Response) -> str:
    """Fetch an anonymous token from the place that the registry's refusal names."""
    asked = dict(re.findall(r'(\w+)="([^"]*)"', refusal.headers.get("WWW-Authenticate", "")))
    realm = asked.pop("realm", "")
    if not realm:
        raise NotThere(f"{client.base_url.host} lets nobody in without saying why")
    answer = client.get(realm, params=asked).raise_for_status().json()
    return str(answer.get("token") or answer["access_token"])


def check_all() -> Iterator[tuple[PinnedImage, str, bool]]:
    """Yield each image with the result as a line, and whether it is as pinned."""
    for image in pinned_images():
        try:
            yield image, check(image), True
        except (NotThere, httpx.HTTPError) as error:
            yield image, f"NOT VERIFIED: {error}", False


if __name__ == "__main__":
    good = True
    for each, line, is_good in check_all():
        good = good and is_good
        sys.stdout.write(f"{each.repository}:{each.tag}@{each.digest[:19]}…: {line}\n")
    sys.exit(0 if good else 1)
