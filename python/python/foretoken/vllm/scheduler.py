"""The hooks in vLLM's scheduler. They only call the desk, behind a guard."""

from __future__ import annotations

import functools
import time
from typing import Any

from foretoken.vllm.desk import Desk, take


@functools.cache
def seated(base: type) -> type:
    """A subclass of one of vLLM's schedulers with a policy in its seat."""
    parent: Any = base

    class Seated(parent):  # type: ignore[misc]
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            self.desk: Desk | None = take(self)

        def schedule(self, *args: Any, **kwargs: Any) -> Any:
            if self.desk is not None:
                self.desk.begun = time.monotonic()
            return super().schedule(*args, **kwargs)

        def _update_after_schedule(self, scheduler_output: Any) -> None:
            # Before vLLM's own part, which makes placeholders for as many drafts under asynchronous scheduling.
            if self.desk is not None:
                with self.desk.chooser.guard("schedule"):
                    self.desk.scheduled(scheduler_output)
            super()._update_after_schedule(scheduler_output)

        def update_from_output(self, scheduler_output: Any, model_runner_output: Any) -> Any:
            if self.desk is None:
                return super().update_from_output(scheduler_output, model_runner_output)
            taken = None
            with self.desk.chooser.guard("update_from_output"):
                taken = self.desk.gave(scheduler_output, model_runner_output)
            outputs = super().update_from_output(scheduler_output, model_runner_output)
            with self.desk.chooser.guard("update_from_output"):
                self.desk.updated(taken)
            return outputs

        def add_request(self, request: Any) -> None:
            super().add_request(request)
            if self.desk is not None:
                with self.desk.chooser.guard("add_request"):
                    self.desk.began(request)

        def _free_request(self, request: Any, *args: Any, **kwargs: Any) -> Any:
            if self.desk is not None:
                with self.desk.chooser.guard("finish"):
                    self.desk.ended(request)
            return super()._free_request(request, *args, **kwargs)

        def shutdown(self) -> None:
            super().shutdown()
            if self.desk is not None:
                with self.desk.chooser.guard("shutdown"):
                    self.desk.chooser.close()

    Seated.__name__ = Seated.__qualname__ = f"Seated{base.__name__}"
    return Seated
