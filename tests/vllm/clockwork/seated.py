"""The clockwork device with one of Foretoken's policies in the place of the drafter: the policy decides after each step how
many drafts each request gets, stops drafting by confidence, and chooses which drafts the next step verifies.

    vllm serve ... --distributed-executor-backend seated.Seated --no-async-scheduling
    CLOCKWORK_SEAT=target/release/examples/seat CLOCKWORK_POLICY='{"foresight": {}}'

The policy runs in another process, `policies/examples/seat.rs`. vLLM's executor interface does not show the waiting
requests, so the policy sees none. All other things that a policy sees are there. A request holds as many drafts as the
policy wants verified, and vLLM's scheduler takes such lists of unlike lengths as they are. That needs synchronous
scheduling: the asynchronous scheduler schedules `num_speculative_tokens` drafts for every request before it knows them.
"""

import json
import os
import subprocess

from executor import Clockwork, Step

# Seconds of the host between two draft passes, in which the policy decides whether to go on.
DECISION_S = 0.1e-3
# Seconds of the host after the last draft pass, in which the policy selects which drafts the next step verifies.
SELECT_S = float(os.environ.get("CLOCKWORK_SELECT_S", "0"))


class Seated(Clockwork):
    """The clockwork device with a policy."""

    def _init_executor(self) -> None:
        super()._init_executor()
        config = self.vllm_config.scheduler_config
        self.longest = self.speculative_config.num_speculative_tokens
        self.seat = subprocess.Popen([os.environ["CLOCKWORK_SEAT"]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.numbers: dict[str, int] = {}
        self.begun = 0
        self.ended: list[int] = []
        # Seconds of the draft passes that made the drafts which the requests hold.
        self.drafting_s = 0.0
        budget = config.max_num_batched_tokens
        law = self.law
        setup = {
            "policy": json.loads(os.environ["CLOCKWORK_POLICY"]),
            "max_draft_len": self.longest,
            "max_num_seqs": config.max_num_seqs,
            "max_num_batched_tokens": budget,
            "draft": passes([law.draft_s(n, 0) for n in range(budget + 1)], law.draft.context_s),
            "target": passes([law.target_s(n, 0, 0) for n in range(budget + 1)], law.target.context_s),
        }
        self.seat.stdin.write(json.dumps(setup) + "\n")

    def execute_model(self, output, non_block: bool = False):
        # A request that comes back under its name is another request.
        self.ended += [self.numbers.pop(name) for name in output.finished_req_ids if name in self.numbers]
        return super().execute_model(output, non_block)

    def number(self, name: str) -> int:
        """The number under which the policy knows a request."""
        if name not in self.numbers:
            self.numbers[name], self.begun = self.begun, self.begun + 1
        return self.numbers[name]

    def propose(self, step: Step, names: list[str]) -> int:
        following = []
        for name in step.sampling:
            known = self.requests[name]
            confidences = self.law.confidences(known.luck, known.sampled, self.longest)
            context = known.prompt + known.sampled - 1
            following.append({"id": self.number(name), "context": context, "emitted": known.sampled, "confidences": confidences})
        line = {
            "chunks": step.chunks,
            "num_running": len(names),
            "num_waiting": 0,
            "next": following,
            "accepted": [(self.number(name), right) for name, right in step.accepted.items()],
            "target_s": step.target_s,
            "draft_s": self.drafting_s,
            "ended": self.ended,
        }
        self.ended = []
        self.seat.stdin.write(json.dumps(line) + "\n")
        answer = json.loads(self.seat.stdout.readline())
        self.hold(names, dict(zip(step.sampling, answer["verified"])))
        return max(answer["drafted"], default=0)

    def draft_s(self, k: int, tokens: int, requests: int, context: int) -> float:
        """The first draft pass runs in every step, because it computes the draft model's KV."""
        decisions_s = max(k - 1, 0) * DECISION_S + (SELECT_S if k else 0.0)
        self.drafting_s = super().draft_s(max(k, 1), tokens, requests, context) + decisions_s
        return self.drafting_s

    def shutdown(self) -> None:
        self.seat.stdin.close()
        self.seat.wait(10)
        super().shutdown()


def passes(by_tokens_s: list[float], context_s: float) -> dict:
    """A model's pass times for the policy: by number of tokens, and the line through two of them."""
    per_token = (by_tokens_s[256] - by_tokens_s[1]) / 255
    line = {"alpha_s": context_s, "gamma_s": per_token, "delta_s": by_tokens_s[1] - per_token}
    return {"by_tokens_s": by_tokens_s, "line": line}
