"""The check of pinned images, against a registry that asks for a token first as the real ones do."""

import hashlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar

import pytest

from deploy.digests import NotThere, PinnedImage, check, pinned_images

MANIFEST = b'{"schemaVersion": 2}'
DIGEST = f"sha256:{hashlib.sha256(MANIFEST).hexdigest()}"
OTHER = f"sha256:{'0' * 64}"


class Registry(BaseHTTPRequestHandler):
    """One repository with a manifest under a digest, and tags."""

    manifests: ClassVar[dict[str, bytes]] = {DIGEST: MANIFEST, "same": MANIFEST, "moved": b"{}", OTHER: b"{}"}

    def do_GET(self) -> None:
        path, _, query = self.path.partition("?")
        if path == "/token":
            self._send(200, b'{"token": "t"}' if "scope=pull" in query else b"{}")
        elif self.headers.get("Authorization") != "Bearer t":
            realm = f'Bearer realm="http://{self.headers["Host"]}/token",service="r",scope="pull"'
            self._send(401, b"", realm)
        else:
            found = self.manifests.get(path.rpartition("/")[2])
            self._send(200 if found is not None else 404, found or b"")

    def _send(self, status: int, body: bytes, realm: str = "") -> None:
        self.send_response(status)
        if realm:
            self.send_header("WWW-Authenticate", realm)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture(scope="module")
def registries() -> Iterator[dict[str, str]]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Registry) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield {"registry-1.docker.io": f"http://127.0.0.1:{server.server_port}"}
        server.shutdown()


def test_a_digest_that_is_there_is_verified_by_what_is_sent(registries: dict[str, str]) -> None:
    assert check(PinnedImage("python", "same", DIGEST), registries) == "there"
    assert "the tag moved means" in check(PinnedImage("python", "moved", DIGEST), registries)


@pytest.mark.parametrize("digest", [f"sha256:{'1' * 64}", OTHER])
def test_a_digest_that_was_made_up_is_found_out(digest: str, registries: dict[str, str]) -> None:
    with pytest.raises(NotThere):
        check(PinnedImage("python", "same", digest), registries)


def test_every_image_of_others_is_asked_for() -> None:
    places = {image.place for image in pinned_images()}
    assert places == {
        ("registry-1.docker.io", "library/python"),
        ("registry-1.docker.io", "library/redis"),
        ("registry-1.docker.io", "nvidia/cuda"),
        ("quay.io", "minio/minio"),
    }
