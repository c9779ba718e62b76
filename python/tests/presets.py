"""SmartSpec and AdaSpec in Python, after their papers and as Foretoken's presets read them (docs/model.md 2, 3, 12)."""

import heapq
import math

from foretoken import Beam, Limit, Policy
from foretoken.estimate import Depths, Estimate


class SmartspecInPython(Policy):
    """Chooses one length per step: the length with the best estimated goodput under the mean acceptance rate."""

    def __init__(self, context, initial_acceptance=0.7, ema_keep=0.85, skip_draft_prefill_above=0.7):
        self.belief = context.belief
        self.longest = context.max_draft_len
        self.acceptance = initial_acceptance
        self.keep = ema_keep
        self.skip_above = 1.0 if context.belief.drafting == "parallel" else skip_draft_prefill_above
        self.steps = self.zeroes = 0

    def limit(self):
        return self.longest

    def drafts_for_next(self, request):
        return not (self.steps > 0 and self.zeroes / self.steps > self.skip_above)

    def propose(self, batch):
        depths, estimate = Depths(batch, self.longest), Estimate(self.belief, batch)
        tokens, reached = float(len(batch)), 1.0
        best, goodput = 0, tokens / estimate.step_s
        for k in range(1, self.longest + 1):
            at = depths[k]
            if at[0] == 0:
                break
            estimate.deepen(at)
            reached *= self.acceptance
            tokens += at[0] * reached
            if tokens / estimate.step_s > goodput:
                best, goodput = k, tokens / estimate.step_s
        if depths[1][0] > 0:
            self.steps += 1
            self.zeroes += best == 0
        return best

    def observe(self, outcome):
        accepted = outcome.accepted.tolist()
        tries = sum(min(v, a + 1) for a, v in zip(accepted, outcome.verified.tolist()))
        if tries > 0:
            self.acceptance = self.keep * self.acceptance + (1.0 - self.keep) * (sum(accepted) / tries)


class AdaspecInPython(Policy):
    """Drafts while confidences predict more throughput, drops the least likely tokens, and keeps the SLO."""

    wants = ("confidence",)

    def __init__(self, context, prev_confidence=0.6, cap=8):
        self.belief = context.belief
        self.cap = min(cap, context.max_draft_len)
        self.expected = prev_confidence
        self.sum, self.count = 0.0, 0

    def limit(self):
        return self.cap

    def propose(self, batch):
        n = len(batch)
        self.depths = Depths(batch, self.cap)
        self.estimate = Estimate(self.belief, batch)
        self.tokens = float(n)
        self.last = [1.0] * n
        self.cumulative = [[] for _ in range(n)]
        self.going_on = float(self.depths[1][0])
        self.passes = 0
        self.slo_s = min([math.inf, *batch.slo_tpot_s.tolist()])
        return self.cap if self.worth_a_pass(-1.0) else 0

    def throughput(self, tokens, estimate):
        seconds = estimate.step_s
        return -1.0 if estimate.passes > 0 and seconds > self.slo_s else tokens / seconds

    def worth_a_pass(self, best):
        at = self.depths[self.passes + 1]
        if at[0] == 0:
            return False
        longer = self.estimate.copy()
        longer.deepen(at)
        return self.throughput(self.tokens + self.expected * self.going_on, longer) > best

    def take_in(self, batch, drafts):
        limit, context, gap = batch.limit.tolist(), batch.context.tolist(), batch.draft_gap.tolist()
        lens, confidence = drafts.draft_len.tolist(), drafts.confidence.tolist()
        while self.passes < drafts.passes:
            j = self.passes
            self.passes += 1
            self.going_on = 0.0
            requests = contexts = catch_up = 0
            for i in range(len(batch)):
                if lens[i] < self.passes:
                    continue
                self.last[i] *= confidence[i][j]
                self.cumulative[i].append(self.last[i])
                self.tokens += self.last[i]
                self.going_on += self.last[i] if limit[i] > self.passes else 0.0
                requests += 1
                contexts += context[i]
                catch_up += 0 if batch.always_extend else gap[i]
            self.estimate.deepen((requests, contexts, catch_up))

    def keep_drafting(self, batch, drafts):
        self.take_in(batch, drafts)
        return self.worth_a_pass(self.throughput(self.tokens, self.estimate))

    def select(self, batch, drafts):
        self.take_in(batch, drafts)
        best = self.throughput(self.tokens, self.estimate)
        context, verified = batch.context.tolist(), drafts.draft_len.tolist()
        # Tokens are removed in this order: the least likely token first; among equally likely tokens the deeper one,
        # then the later request's.
        tails = [(self.cumulative[i][v - 1], -v, -i) for i, v in enumerate(verified) if v > 0]
        heapq.heapify(tails)
        while tails:
            promise, depth, i = tails[0][0], -tails[0][1], -tails[0][2]
            shorter = self.estimate.copy()
            shorter.drop_token(context[i] + depth)
            throughput = self.throughput(self.tokens - promise, shorter)
            if throughput <= best:
                break
            best, self.estimate = throughput, shorter
            self.tokens -= promise
            verified[i] -= 1
            heapq.heappop(tails)
            if depth > 1:
                heapq.heappush(tails, (self.cumulative[i][depth - 2], -(depth - 1), -i))
        return verified

    def observe(self, outcome):
        # The confidences are summed in the order of the built-in preset: per request, then over the requests.
        total, count = 0.0, 0
        confidence = outcome.drafts.confidence.tolist()
        for row, drafted in zip(confidence, outcome.drafted.tolist()):
            of_request = 0.0
            for c in row[:drafted]:
                of_request += c
            total += of_request
            count += drafted
        if count > 0:
            self.sum += total
            self.count += count
            self.expected = self.sum / self.count


class FixedInPython(Policy):
    """Drafts a fixed length for every request."""

    def __init__(self, context, k=3):
        self.k = min(k, context.max_draft_len)

    def limit(self):
        return self.k

    def propose(self, batch):
        return self.k


class Eagle2InPython(Policy):
    """Grows trees that are deeper where the draft is confident, and verifies the best nodes."""

    def __init__(self, context, steps=5, topk=4, verified=7):
        self.depth, self.topk, self.verified = min(steps, context.max_draft_len), topk, verified

    def limit(self):
        return Limit(self.depth, tree_tokens=self.verified)

    def propose(self, batch):
        return Beam(self.topk, self.depth)

    def select(self, batch, drafts):
        return [min(self.verified, limit) for limit in batch.limit.tolist()]


class Eagle2ByNodes(Eagle2InPython):
    """Marks the nodes to verify, of which `Eagle2InPython` gives only the number."""

    def select(self, batch, drafts):
        kept = []
        for tree, limit in zip(drafts.trees, batch.limit.tolist()):
            best = sorted(range(len(tree)), key=lambda at: (-tree.score[at], at))[: min(self.verified, limit)]
            kept.append([at in best for at in range(len(tree))])
        return kept


class Failing(FixedInPython):
    """Raises an exception after ten steps."""

    steps = 0

    def observe(self, outcome):
        self.steps += 1
        self.steps / (0 if self.steps > 10 else 1)


def captured_sizes(most):
    """The batch sizes for which SGLang captures graphs: all to 8, then in growing steps, and the largest."""
    steps = [*range(1, 9), *range(10, 33, 2), *range(40, 65, 4), *range(72, 257, 8), *range(272, most + 1, 16)]
    sizes = [size for size in steps if size <= most]
    return sizes if sizes[-1] == most else [*sizes, most]


def uniform_pass(requests, each, context, reads):
    """Batched tokens, context and query-key pairs of a pass with ``each`` new tokens per request behind ``context``."""
    tokens = requests * each
    positions = tokens * context + requests * (each * (each - 1) // 2)
    return tokens, requests * context if reads == "once" else positions, positions + tokens


class ThroughputInPython(Policy):
    """Chooses the length with the most expected tokens per timed round, like SGLang's throughput strategy."""

    SLOTS = ((1, (1, 3, 5)), (8, (1, 3)))

    def __init__(self, context, window=20, interval=10, kv=2048, initial=3):
        self.sizes = captured_sizes(context.max_num_seqs)
        profile = context.profile
        self.table = {size: {k: self.round_s(profile, size, k, kv) for k in self.slot(size)} for size in self.sizes}
        self.longest = max(k for _, candidates in self.SLOTS for k in candidates)
        self.most, self.window, self.interval = context.max_draft_len, window, interval
        self.rates = [[] for _ in range(self.longest)]
        self.oldest = [0] * self.longest
        self.steps, self.batches = initial, 0

    @staticmethod
    def round_s(profile, requests, steps, kv):
        drafts = 0.0
        for j in range(steps):
            drafts += profile.draft_s(*uniform_pass(requests, 1, kv + j, "once"))
        return drafts + profile.target_s(*uniform_pass(requests, steps + 1, kv, profile.context_reads))

    def padded(self, batch_size):
        return next((size for size in self.sizes if size >= batch_size), self.sizes[-1])

    def slot(self, batch_size):
        below = [candidates for key, candidates in self.SLOTS if key <= self.padded(batch_size)]
        return below[-1] if below else self.SLOTS[0][1]

    def due(self):
        warm = all(len(rates) == self.window for rates in self.rates[: self.steps])
        return self.batches > 0 and self.batches % self.interval == 0 and warm

    def limit(self):
        now = self.longest if self.due() else self.steps
        return Limit(min(now, self.most), max_depth=min(self.longest, self.most))

    def expected_tokens(self, steps):
        total, first, last = 1.0, 0.0, 0.0
        for j in range(steps):
            known = self.rates[j]
            if known:
                rate = sum(known) / len(known)
            elif j == 0:
                return None
            elif j == 1:
                rate = last
            elif first <= 0.0:
                rate = 0.0
            else:
                rate = max(min(last, last * (last / first) ** (1.0 / (j - 1.0))), 0.0)
            first = rate if j == 0 else first
            last = rate
            total += rate
        return total

    def propose(self, batch):
        if self.due():
            best, chosen = -math.inf, self.steps
            for k in self.slot(len(batch)):
                tokens = self.expected_tokens(k)
                if tokens is not None and tokens / self.table[self.padded(len(batch))][k] > best:
                    best, chosen = tokens / self.table[self.padded(len(batch))][k], k
            if chosen < self.steps:
                for j in range(chosen, self.longest):
                    self.rates[j], self.oldest[j] = [], 0
            self.steps = chosen
        return min(self.steps, self.most)

    def observe(self, outcome):
        verified, accepted = outcome.verified.tolist(), outcome.accepted.tolist()
        if not any(verified):
            return
        self.batches += 1
        for j in range(min(self.steps, self.longest)):
            tries = sum(v > j for v in verified)
            if tries == 0:
                return
            rate = sum(a > j for a in accepted) / tries
            if len(self.rates[j]) < self.window:
                self.rates[j].append(rate)
            else:
                self.rates[j][self.oldest[j]] = rate
                self.oldest[j] = (self.oldest[j] + 1) % self.window


class KeepsTheProfile(FixedInPython):
    """Times passes during the run, which is refused."""

    def __init__(self, context, k=3):
        super().__init__(context, k)
        self.profile = context.profile

    def propose(self, batch):
        return 1 if self.profile.target_s(8) < 1.0 else 2
