#!/usr/bin/env python3
"""Tests law.py: the costs of the shipped laws, equal random draws for every draft length, and a message for each wrong
file.

    python check_law.py
"""

import math
import pathlib
import statistics
import tempfile

from law import BadLaw, read, sigmoid

HERE = pathlib.Path(__file__).resolve().parent
GOOD = (HERE / "laws" / "memory-bound.toml").read_text()


def refused(change: tuple[str, str], says: str) -> None:
    assert change[0] in GOOD, change
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "law.toml"
        path.write_text(GOOD.replace(*change, 1))
        try:
            read(path)
        except BadLaw as error:
            assert says in str(error) and str(path) in str(error), error
        else:
            raise AssertionError(f"{change} was read")


def recorded() -> None:
    """Requests replay recorded outputs, and a wrong table is named with its line."""
    with tempfile.TemporaryDirectory() as folder:
        path, table = pathlib.Path(folder) / "law.toml", pathlib.Path(folder) / "outputs.jsonl"
        path.write_text(GOOD[: GOOD.index("[acceptance]")] + '[acceptance]\ntable = "outputs.jsonl"\n')
        table.write_text('{"bits": "1101?"}\n{"bits": "0"}\n')
        law = read(path)
        accepted = {name: [law.accepted(name, at, 3) for at in range(6)] for name in (b"%d" % n for n in range(40))}
        # Positions 4 and 5 reach the end of the output, which then starts again.
        assert {tuple(row) for row in accepted.values()} == {(2, 1, 0, 1, 0, 2), (0,) * 6}, accepted
        assert accepted[b"3"] == [read(path).accepted(b"3", at, 3) for at in range(6)], "a request keeps its output"
        for text, says in (
            ('{"bits": "1"}\n{"bits": "12"}', "outputs.jsonl, line 2: bits: one or more of the characters"),
            ("bits", "outputs.jsonl, line 1: an object with the key bits"),
            ("", "outputs.jsonl has no outputs"),
            (None, "outputs.jsonl: No such file"),
        ):
            table.unlink() if text is None else table.write_text(text)
            try:
                read(path)
            except BadLaw as error:
                assert says in str(error), error
            else:
                raise AssertionError(f"{text} was read")


def odds() -> None:
    """Confidences are calibrated: by the curve of the law, drafts of a confidence are right as often as it says. That holds
    for tokens behind a wrong one only in that they look like wrong tokens."""
    law = read(HERE / "laws" / "memory-bound-odds.toml")
    a = law.acceptance
    bins = [[0, 0.0, 0] for _ in range(5)]
    wrong, off = [], []
    for n in range(6000):
        request = f"request {n}".encode()
        confidences = law.confidences(request, 7, 8)
        held = law.accepted(request, 7, 8)
        assert law.accepted(request, 7, 3) == min(held, 3)
        assert confidences[:3] == law.confidences(request, 7, 3), "a longer draft changes no confidence"
        for depth, q in enumerate(confidences):
            if depth <= held:
                chance = sigmoid(a.slope * math.log(q / (1.0 - q)) + a.intercept)
                at = bins[min(int(5 * chance), 4)]
                at[0], at[1], at[2] = at[0] + 1, at[1] + chance, at[2] + (depth < held)
            if depth >= held:
                (wrong if depth == held else off).append(math.log(q / (1.0 - q)))
    for count, chances, right in bins:
        assert count > 300 and abs(chances - right) < 4 * math.sqrt(count) / 2, bins
    assert abs(statistics.mean(wrong) - statistics.mean(off)) < 0.15, (statistics.mean(wrong), statistics.mean(off))


def main() -> None:
    law = read(HERE / "laws" / "memory-bound.toml")
    assert law.target_s(1, 0, 0) == law.target_s(48, 0, 0) == 13.0e-3
    assert abs(law.target_s(148, 1000, 0) - (13.0e-3 + 100 * 0.19e-3 + 0.35e-3)) < 1e-12
    assert abs(law.draft_s(10, 0) - 1.58e-3) < 1e-12
    stairs = read(HERE / "laws" / "staircase.toml")
    assert stairs.target_s(9, 0, 0) == stairs.target_s(16, 0, 0) != stairs.target_s(9, 0, 5), "prompts are not padded"
    experts = read(HERE / "laws" / "mixture-of-experts.toml")
    assert abs(experts.target_s(2, 0, 0) - (5e-3 + 14e-3 * (1 - (7 / 8) ** 2) + 0.08e-3)) < 1e-12
    foreign = read(HERE / "laws" / "foreign-terms.toml")
    assert abs(foreign.target_s(48, 1740, 0, 12) - (8.2e-3 + 48 * 0.05e-3 + 48**2 * 1.2e-6 + 2.1e-3 + 1740 * 1.3e-6)) < 1e-12
    assert abs(foreign.target_s(109, 0, 109, 8) - (8.2e-3 + 109 * 0.05e-3)) < 1e-12, "prompts are not squared"
    rates = [foreign.rate(f"request {n}".encode()) for n in range(4000)]
    assert abs(statistics.mean(rates) - (0.8 + 0.4) / 2) < 0.01 and abs(statistics.stdev(rates) - 0.225) < 0.01, "two kinds"
    tiles = read(HERE / "laws" / "tiles.toml")
    assert abs(tiles.target_s(20, 0, 0) - 8.2e-3) < 1e-12 and abs(tiles.target_s(21, 0, 0) - 10.4e-3) < 1e-12
    saturating = read(HERE / "laws" / "saturating.toml")
    assert abs(saturating.target_s(24, 0, 0) - (6.5e-3 + 24 * 0.04e-3 + 5.5e-3)) < 1e-12
    assert abs(saturating.draft_s(4, 0) - 1.36e-3) < 1e-12
    jitter = [experts.jitter(n) for n in range(4000)]
    assert abs(statistics.mean(jitter) - 1) < 0.002 and abs(statistics.stdev(jitter) - 0.02) < 0.001

    # Luck: a longer draft accepts the same tokens and perhaps more; the mean rate is a / (a + b).
    requests = [f"request {n}".encode() for n in range(3000)]
    for request in requests[:300]:
        few, many = law.accepted(request, 7, 3), law.accepted(request, 7, 8)
        assert few == min(many, 3)
    assert abs(statistics.mean(law.rate(request) for request in requests) - 8.0 / 13.7) < 0.01

    recorded()
    odds()
    refused(("a = 8.0", "odds_sd = 1.0"), "acceptance.odds_sd = 1.0: a, b, factors and table do nothing with odds")
    refused(("a = 8.0\nb = 5.7", "odds_sd = -1.0"), "acceptance.odds_sd = -1.0: a standard deviation")
    refused(("a = 8.0\nb = 5.7", "odds_sd = 1.0\nslope = 0.0"), "acceptance.slope = 0.0: a factor")
    refused(("base_s = 13.0e-3", "base_s = -1.0"), "target.base_s = -1.0: a number of at least 0")
    refused(("base_s = 13.0e-3", "base_s = 60.0"), "target.base_s = 60.0: seconds of a pass")
    refused(("base_s = 13.0e-3", 'base_s = "13 ms"'), "target.base_s: '13 ms' is not a number")
    refused(("knee = 48", "kneee = 48"), "target.kneee: there is no such key; there are base_s")
    refused(("[draft]", "[drafts]"), "[draft] is missing")
    refused(("a = 8.0", "a = 0.0"), "acceptance.a = 0.0: a number above 0")
    refused(("b = 5.7", "b = 5.7\nsecond_share = 0.5"), "acceptance.second_a = 0.0: a number above 0 with second_share")
    refused(("knee = 48", "tile_s = 1e-3"), "target.tile = 0: tokens of a tile")
    refused(("knee = 48", "saturating_s = 1e-3"), "target.half = 0.0: tokens above 0")
    refused(("[target]", "jitter_cv = 3.0\n[target]"), "jitter_cv = 3.0: a coefficient of variation")
    refused(("a = 8.0", 'table = "x"\na = 8.0'), "x: No such file")
    refused(("b = 5.7", ""), "acceptance.b = 0.0: a number above 0")
    refused(("[target]", "recorded = 1\n[target]"), "recorded: there is no such key")
    refused(("[target]", "[target"), "law.toml")
    try:
        read("no-such-law.toml")
    except BadLaw as error:
        assert "no-such-law.toml" in str(error) and "name a law file" in str(error), error
    print("law.py keeps its word")


main()
