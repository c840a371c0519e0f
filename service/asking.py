"""What is asked for on any thread and done on the consumer's, between two batches; the answer comes after the commit.

NotThere         nothing of this name
Busy             the collector does not come to it; nothing was changed
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Final, TypeVar

from service.consume import Processed

T = TypeVar("T")

Post = Callable[[Callable[[], Processed | None]], None]
"""Hands a job to the thread that owns the incident book."""
PATIENCE_SECONDS: Final = 10.0


class NotThere(Exception):
    """Nothing of this name; its text says so."""


class Busy(Exception):
    """The collector does not come to it in time."""


def ask(
    post: Post,
    work: Callable[[], tuple[T, Processed | None]],
    *,
    after: Callable[[], Processed | None] | None = None,
    harmless: type[Exception] = NotThere,
    patience: float = PATIENCE_SECONDS,
) -> T:
    """Have `work` done, and give its answer; what it raises is raised here.

    work: the answer, and what was committed
    after: done behind the answer, if the work did not raise; in the place of what `work` committed
    harmless: errors after which memory is what it was. Any other one is the loop's too, which begins anew from the store.
    patience: seconds; then Busy is raised, unless the work has begun
    """
    answer: Future[T] = Future()

    def job() -> Processed | None:
        if not answer.set_running_or_notify_cancel():
            return None
        try:
            done, processed = work()
        except harmless as error:
            answer.set_exception(error)
            return None
        except Exception as error:
            answer.set_exception(error)
            raise
        answer.set_result(done)
        return processed if after is None else after()

    post(job)
    try:
        return answer.result(patience)
    except TimeoutError:
        if answer.cancel():
            raise Busy(f"the collector does not come to it within {patience:.0f} s; nothing was changed") from None
        return answer.result()  # it is being done
