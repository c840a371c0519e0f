"""Routes that change something: the token first, then the body, then the desk; what is refused becomes a status."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from starlette.concurrency import run_in_threadpool
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from service.asking import Busy, NotThere
from service.http import bodies
from service.http.access import Access
from service.mute_desk import InFile
from service.store.model import StoreError
from service.store.mutes import NameTaken

log = logging.getLogger(__name__)


def posted(path: str, access: Access, schema: type[Any], make: Callable[..., Response]) -> Route:
    """POST with a body: `make` is given the caller, the body, and what stands in the path by its name."""

    async def answer(request: Request) -> Response:
        body = await request.body()

        def work() -> Response:
            caller = access.changes(request)  # before the body is looked at: a stranger learns nothing of what would be taken
            read = bodies.parse(body, request.headers.get("content-type", ""), schema)
            return answered(lambda: make(caller, read, **request.path_params))

        return await run_in_threadpool(work)

    return Route(path, answer, methods=["POST"])


def deleted(path: str, access: Access, end: Callable[..., Response]) -> Route:
    """DELETE: `end` is given the caller, and what stands in the path by its name."""

    def answer(request: Request) -> Response:
        caller = access.changes(request)
        return answered(lambda: end(caller, **request.path_params))

    return Route(path, answer, methods=["DELETE"])


def answered(work: Callable[[], Response]) -> Response:
    """What the desk refuses, as a status."""
    try:
        return work()
    except NotThere as error:
        raise HTTPException(404, str(error)) from None
    except (InFile, NameTaken) as error:
        raise HTTPException(409, str(error)) from None
    except Busy as error:
        raise HTTPException(503, str(error)) from None
    except StoreError as error:
        log.error("not kept: %s", error)
        raise HTTPException(503, "the store cannot be used now; look at the list before you try again") from None
