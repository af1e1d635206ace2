"""The calls of an application that change something, in its API and on its pages."""

import re

from fastapi import FastAPI

PAGES = [("POST", path) for path in ("/jobs/x/cancel", "/jobs/x/retry", "/sign-in", "/sign-out")]


def unsafe_calls(app: FastAPI) -> list[tuple[str, str]]:
    """Their methods and paths, with `x` for every id."""
    paths = app.openapi()["paths"]
    found = [
        (method.upper(), re.sub(r"\{\w+\}", "x", path))
        for path, operations in paths.items()
        for method in operations
        if method != "get"
    ]
    assert ("POST", "/models/x/promote") in found and ("POST", "/webhooks/training") in found
    return found + PAGES
