"""The files that pages load; their addresses change with them, so browsers may keep them."""

from litestar import Response, get
from litestar.params import FromPath

from angarium.api.problems import hidden
from angarium.console.rendering.responses import FILE_TYPES, SECURITY_HEADERS, file

KEPT = {"cache-control": "public, max-age=31536000, immutable"}


@get("/files/{digest:str}/{name:str}")
async def get_file(digest: FromPath[str], name: FromPath[str]) -> Response[bytes]:
    """A file by its name and the digest of its content."""
    kind = FILE_TYPES.get(name)
    if kind is None or digest != file(name)[1]:
        raise hidden()
    return Response(file(name)[0], media_type=kind, headers=SECURITY_HEADERS | KEPT)
