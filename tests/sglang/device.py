"""The device under the scheduler: it says which tokens a pass gives and when, and computes nothing."""

import chance
from engine import EOS
from workloads import Workload, output_token

# Microseconds of a pass, of a token in it, and of a request in it.
PASS, TOKEN, REQUEST = 3000, 10, 50


class Device:
    """Runs passes one after another. `free` is the end of the last one that was launched."""

    def __init__(self, scheduler, work: Workload) -> None:
        self.scheduler, self.work = scheduler, work
        self.free = 0
        # Output tokens of each request that this device has made. In the overlap loop the scheduler knows of fewer.
        self.made = [0] * len(work.requests)

    def drafts(self, batch) -> int:
        """Drafts of a row in this pass."""
        if batch.spec_algorithm.is_none() or batch.forward_mode.is_extend():
            return 0
        worker = self.scheduler.model_worker
        worker.activate_step_by_batch(batch.batch_size())
        return worker.speculative_num_steps

    def token(self, request: int, position: int) -> int:
        """The token of a request at an output position, which counts from 0."""
        last = self.work.requests[request].eos_after
        return EOS if last is not None and position == last - 1 else output_token(request, position)

    def run(self, batch, now: int, drafts: int, publish=None):
        """The pass of a batch: its result, when it starts, and the right drafts of each row."""
        tokens = sum(batch.extend_lens) if batch.forward_mode.is_extend() else batch.batch_size() * (1 + drafts)
        start = max(now, self.free)
        self.free = start + PASS + TOKEN * tokens + REQUEST * batch.batch_size()
        rows, right = [], []
        for index, request in self.rows(batch):
            place = self.made[index]
            count = chance.accepted(self.work.seed, self.work.accept, index, place, drafts)
            rows.append([self.token(index, place + at) for at in range(1 + drafts)])
            right.append(count)
            self.made[index] = place + 1 + count
        result = self.result(batch, rows, right, drafts, publish)
        result.ready = self.free
        return result, start, right

    def rows(self, batch):
        """The batch's requests in order. A prompt, also one that starts again, goes on from the tokens that it has."""
        decoding = batch.decoding_reqs or () if batch.forward_mode.is_extend() else batch.reqs
        for request in batch.reqs:
            index = int(request.rid)
            if not any(request is other for other in decoding):
                self.made[index] = len(request.output_ids)
            yield index, request

    def result(self, batch, rows: list[list[int]], right: list[int], drafts: int, publish):
        import torch
        from sglang.srt.managers.utils import GenerationBatchResult
        from sglang.srt.speculative.eagle_info import EagleDraftInput

        count = len(rows)
        if batch.spec_algorithm.is_none() or batch.forward_mode.is_extend():
            result = GenerationBatchResult(next_token_ids=torch.tensor([row[0] for row in rows], dtype=torch.int64))
            result.new_seq_lens = batch.seq_lens
        else:
            lengths = torch.tensor([1 + accepted for accepted in right], dtype=torch.int64)
            flat = torch.tensor([token for row in rows for token in row], dtype=torch.int64)
            result = GenerationBatchResult(next_token_ids=flat, accept_lens=lengths, speculative_num_draft_tokens=1 + drafts)
            result.new_seq_lens = batch.seq_lens + lengths
        if not batch.spec_algorithm.is_none():
            if publish:
                publish(result.new_seq_lens)
            last = [row[accepted] for row, accepted in zip(rows, right)]
            result.next_draft_input = EagleDraftInput(
                topk_p=torch.ones(count, 1),
                topk_index=torch.zeros(count, 1, dtype=torch.int64),
                hidden_states=torch.zeros(count, self.scheduler.model_config.hidden_size),
                bonus_tokens=torch.tensor(last, dtype=torch.int64),
            )
        return result
