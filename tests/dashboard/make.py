#!/usr/bin/env python3
"""Writes `docs/grafana.json`: a Grafana dashboard of a vLLM server's speculation. `check.py` runs its queries."""

import json
import pathlib

WINDOW = "[$__rate_interval]"
MODEL = '{model_name=~"$model"}'


def rate(counter, by=""):
    return f"sum{by}(rate(vllm:{counter}{MODEL}{WINDOW}))"


def quantile(q, histogram):
    return f"histogram_quantile({q}, {rate(histogram + '_bucket', ' by (le)')})"


def seats(metric, by=""):
    """The rate of a metric of a policy in vLLM's scheduler (`foretoken.vllm`), which has a port of its own."""
    return f"sum{by}(rate(foretoken_{metric}{WINDOW}))"


def mean(histogram):
    return f"{seats(histogram + '_sum')} / {seats(histogram + '_count')}"


DRAFTS, TOKENS, ACCEPTED = (
    rate(f"spec_decode_num_{name}_total") for name in ("drafts", "draft_tokens", "accepted_tokens")
)
PER_POSITION = rate("spec_decode_num_accepted_tokens_per_pos_total", " by (position)")

# Each panel: title, what it says, unit, kind, width in 24ths, queries with their legends.
PANELS = [
    ("Tokens a round", "Tokens that a request gets from one verification: one, and the drafts that were right.",
     "none", "stat", 6, [(f"1 + {ACCEPTED} / {DRAFTS}", "")]),
    ("Drafts that are right", "Of all draft tokens that were verified.",
     "percentunit", "stat", 6, [(f"{ACCEPTED} / {TOKENS}", "")]),
    ("Draft length", "Draft tokens a round. Recommended: the dashboard's variable.",
     "none", "stat", 6, [(f"{TOKENS} / {DRAFTS}", "now"), ("vector($best_k)", "recommended")]),
    ("Output tokens a second", "", "none", "stat", 6, [(rate("generation_tokens_total"), "")]),
    ("Acceptance by position", "Share of rounds in which the draft at a position was right, and all drafts before it.",
     "percentunit", "timeseries", 12, [(f"{PER_POSITION} / ignoring(position) group_left() {DRAFTS}", "{{position}}")]),
    ("Does drafting pay?", "Drafting pays while the share of right drafts lies above the break-even that "
     "`foretoken recommend` prints.",
     "percentunit", "timeseries", 12, [(f"{ACCEPTED} / {TOKENS}", "right"), ("vector($break_even)", "break-even")]),
    ("Requests", "Above the marked number of requests drafting stops paying, as `foretoken recommend` says.",
     "none", "timeseries", 12,
     [(f"sum(vllm:num_requests_running{MODEL})", "running"), (f"sum(vllm:num_requests_waiting{MODEL})", "waiting"),
      ("vector($pays_until)", "pays until")]),
    ("Wasted drafts a second", "Draft tokens that were verified and were wrong.",
     "none", "timeseries", 12, [(f"{TOKENS} - {ACCEPTED}", "wrong"), (ACCEPTED, "right")]),
    ("Time to the first token", "", "s", "timeseries", 12,
     [(quantile(q, "time_to_first_token_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)]),
    ("Time between tokens", "Of one emission to the next: a round with right drafts emits several tokens at once.",
     "s", "timeseries", 12,
     [(quantile(q, "inter_token_latency_seconds"), f"p{round(q * 100)}") for q in (0.5, 0.99)]),
    ("KV cache", "Share in use. A preempted request is computed again.", "percentunit", "timeseries", 12,
     [(f"max(vllm:kv_cache_usage_perc{MODEL})", "in use")]),
    ("Preemptions a second", "", "none", "timeseries", 6, [(rate("num_preemptions_total"), "preemptions")]),
    ("Prompt tokens from the prefix cache", "", "percentunit", "timeseries", 6,
     [(f"{rate('prefix_cache_hits_total')} / {rate('prefix_cache_queries_total')}", "cached")]),
    ("Draft length with a policy in the seat", "Mean over steps. In shadow mode vLLM's own length is used.",
     "none", "timeseries", 12, [(mean("draft_length"), "used"), (mean("theirs_length"), "vLLM's own")]),
    ("Gain that the seat estimates", "Tokens a second at the policy's lengths, as a share of vLLM's own. An estimate "
     "from the seat's costs and acceptance, not a measurement.",
     "percentunit", "timeseries", 12, [("avg(foretoken_estimated_gain_ratio)", "gain")]),
    ("Does the seat expect what happens?", "Accepted draft tokens a second, and what the seat expected of them.",
     "none", "timeseries", 12, [(seats("accepted_total"), "accepted"), (seats("expected_tokens_total"), "expected")]),
    ("Time of a decision", "Of the policy in the seat.", "s", "timeseries", 6,
     [(f"histogram_quantile({q}, {seats('decision_seconds_bucket', ' by (le)')})", f"p{round(q * 100)}")
      for q in (0.5, 0.99)]),
    ("Fallbacks a second", "Steps with vLLM's own length because the policy failed, by cause.", "none", "timeseries", 6,
     [(f"{seats('fallbacks_total', ' by (why)')} or vector(0)", "{{why}}")]),
]
# What `foretoken recommend` printed for this server. The defaults mark nothing.
ADVICE = [("best_k", "Recommended K", "0"), ("break_even", "Break-even share of right drafts", "0"),
          ("pays_until", "Drafting pays until this many requests run", "0")]


def panels():
    x = y = 0
    height = {"stat": 4, "timeseries": 8}
    for number, (title, says, unit, kind, width, queries) in enumerate(PANELS, 1):
        if x + width > 24:
            x, y = 0, y + row
        row = height[kind]
        yield {
            "id": number, "title": title, "description": says, "type": kind,
            "gridPos": {"x": x, "y": y, "w": width, "h": row},
            "datasource": {"type": "prometheus", "uid": "${source}"},
            "fieldConfig": {"defaults": {"unit": unit, "min": 0}, "overrides": []},
            "targets": [{"refId": chr(ord("A") + i), "expr": expression, "legendFormat": legend or title}
                        for i, (expression, legend) in enumerate(queries)],
        }
        x += width


def dashboard():
    source = {"type": "datasource", "name": "source", "label": "Prometheus", "query": "prometheus"}
    model = {"type": "query", "name": "model", "label": "Model", "includeAll": True, "multi": True, "allValue": ".*",
             "current": {"text": "All", "value": "$__all"}, "refresh": 2,
             "datasource": {"type": "prometheus", "uid": "${source}"},
             "query": "label_values(vllm:num_requests_running, model_name)"}
    advice = [{"type": "textbox", "name": name, "label": label, "query": value,
               "current": {"text": value, "value": value}} for name, label, value in ADVICE]
    return {
        "title": "Speculation of a vLLM server", "uid": "foretoken-speculation", "tags": ["vllm", "speculation"],
        "schemaVersion": 39, "version": 1, "refresh": "10s", "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [source, model, *advice]}, "panels": list(panels()),
    }


if __name__ == "__main__":
    docs = pathlib.Path(__file__).resolve().parents[2] / "docs"
    (docs / "grafana.json").write_text(json.dumps(dashboard(), indent=1) + "\n", encoding="utf-8")
