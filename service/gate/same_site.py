"""The rule for changes that a browser asks for: a page of another site may not ask in its user's name.

A browser adds by itself what may identify its user: the cookie with the key, or, at a service without keys,
the connection from this machine. It adds no bearer token and signs no event: requests with these are exempt.
"""

from starlette.requests import HTTPConnection

from service.errors import CrossSiteRequest

SAFE = ("GET", "HEAD", "OPTIONS")


def require_same_site(connection: HTTPConnection) -> None:
    """Raise CrossSiteRequest if a page of another site asks for a change; programs name no site."""
    if connection.scope["method"] in SAFE:
        return
    site, origin = connection.headers.get("sec-fetch-site"), connection.headers.get("origin")
    foreign = origin is not None and origin.partition("://")[2] != connection.headers.get("host")
    if foreign or site not in (None, "same-origin", "none"):
        raise CrossSiteRequest(
            "a page of another site asked for a change", hint="use this service's own pages"
        )
