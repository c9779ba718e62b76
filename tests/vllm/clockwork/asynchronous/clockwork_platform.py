"""vLLM's CPU platform with asynchronous scheduling, which the original platform switches off.

vLLM finds it by the entry point beside it, if this folder is on PYTHONPATH.
"""

from vllm.platforms.cpu import CpuPlatform


class ClockworkPlatform(CpuPlatform):
    """The CPU platform, with the setting of asynchronous scheduling that was given."""

    @classmethod
    def check_and_update_config(cls, vllm_config) -> None:
        asked = vllm_config.scheduler_config.async_scheduling
        super().check_and_update_config(vllm_config)
        vllm_config.scheduler_config.async_scheduling = asked
        # `record.py` reads this line: without it, the plug-in was not loaded.
        print(f"clockwork platform schedules: {'asynchronous' if asked else 'synchronous'}", flush=True)


def plugin() -> str:
    """The entry point: the name of the class."""
    return "clockwork_platform.ClockworkPlatform"
