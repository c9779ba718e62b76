"""What every engine with a policy in its scheduler shares: settings, costs, the guarded policy, log and metrics.

``foretoken.vllm`` puts these parts into vLLM's scheduler. Nothing here knows an engine.
"""
