"""One decision for all processes of a job: whether to stop at this step.

transformers lets every process decide for itself (`control.should_training_stop` is not synchronised), and only rank 0 hears
requests. So at the end of each step rank 0 tells the others by a broadcast of one number: the one collective operation of this
package. It runs in every process at the same place, only with several processes, and only for runs that may be stopped.
"""

from __future__ import annotations

from typing import Any

from tocsin.control import StopRequest
from tocsin.reporter import Reporter


def asked_to_stop(reporter: Reporter | None, on_stop: str, args: Any) -> tuple[bool, StopRequest | None]:
    """Whether all processes are to stop now; with the request where it was heard.

    on_stop     as every process was told it: whether there is a broadcast must not depend on what only one of them knows, such
                as that its reporter could not be made
    Raises what a broken process group raises: the trainer's own next operation will meet the same.
    """
    if on_stop == "ignore":
        return False, None
    request = reporter.stop_requested() if reporter is not None else None
    if getattr(args, "world_size", 1) <= 1:
        return request is not None, request
    import torch
    from accelerate.utils import broadcast

    told = broadcast(torch.tensor([float(request is not None)], device=args.device), from_process=0)
    return bool(told.item() > 0.5), request
