#!/usr/bin/env python3
"""The error board: predicts rows of measured servers, and writes predictions and errors beside this file.

    board.py run --binary foretoken [--half judge] [--count 240] [--set KEY=VALUE] --column floors
    board.py run --binary foretoken --half judge --ids --kernels --column kernels
    board.py run --binary foretoken --half judge --ids --kernels --servers --column servers
    board.py show [--columns roofline floors]
    board.py figure

`run` says each row as an experiment, runs it, and adds a column of predicted TPOT and TTFT to board.csv. `--count` draws
rows, at random with a fixed seed; `--ids` takes the rows that the board has. `--kernels` sums the package's kernels in
the place of a roofline. `show` writes the tables of errors as Markdown, `figure` the share of rows of the
judged half whose TPOT is within an error, as SVG. Measured columns are read from the
installed package aiconfigurator-core 0.12.0 and stay there: board.csv has ids, predictions and errors.
"""

import argparse
import concurrent.futures
import pathlib
import shutil
import subprocess
import tempfile

import pandas as pd

import rows as table

BOARD = pathlib.Path(__file__).with_name("board.csv")
MEASURED = {"tpot": "silicon_tpot_ms", "ttft": "silicon_ttft_ms"}
SIZES = [0, 4, 16, 64, 256, 100_000]
LABELS = ["1 to 4", "5 to 16", "17 to 64", "65 to 256", "above 256"]


def predict(number, text, binary, changes, folder):
    """(row's number, mean TPOT and TTFT in ms) or (row's number, the error's words)."""
    place = folder / f"row-{number}"
    place.mkdir()
    (place / "row.toml").write_text(text)
    command = [binary, "run", place / "row.toml", "-o", place / "out", "--no-figures"]
    command += ["--format", "csv", "--threads", "1", *(part for change in changes for part in ("--set", change))]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            return number, {"refused": " ".join(done.stderr.split())[:300]}
        requests = pd.read_parquet(place / "out" / "requests.parquet")
        if (requests["outcome"] != "finished").any():
            return number, {"refused": "a request did not finish"}
        return number, {"tpot": 1e3 * requests["tpot_s"].mean(), "ttft": 1e3 * requests["ttft_s"].mean()}
    finally:
        shutil.rmtree(place, ignore_errors=True)


def run(args):
    package = table.package_of(args.package)
    rows = table.read(package)
    rows["half"] = rows.apply(table.half, axis=1)
    rows["suspect"] = table.suspect(rows)
    if args.ids:
        rows = rows[rows["id"].isin(pd.read_csv(BOARD)["id"])]
    if args.half != "both":
        rows = rows[rows["half"] == args.half]
    if args.filter:
        rows = rows.query(args.filter)
    folder = pathlib.Path(tempfile.mkdtemp(prefix="silicon-"))
    said = {}
    try:
        for number, row in rows.iterrows():
            try:
                roofline, *rest = table.say(row, package, folder, args.servers)
                if args.kernels:
                    roofline = table.kernels(roofline, row)
                said[number] = table.experiment(roofline, *rest, "kernels" if args.kernels else "roofline")
            except table.Unsaid:
                pass
        rows = rows.loc[list(said)]
        if args.count and args.count < len(rows):
            rows = rows.sample(args.count, random_state=1)
        with concurrent.futures.ThreadPoolExecutor(args.threads) as pool:
            jobs = [pool.submit(predict, n, said[n], args.binary, args.set, folder) for n in rows.index]
            found = dict(job.result() for job in jobs)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    found = pd.DataFrame.from_dict(found, orient="index").reindex(columns=["tpot", "ttft", "refused"])
    for words, count in found["refused"].dropna().astype(str).str.slice(0, 200).value_counts().items():
        print(f"refused: {count} {words}")
    add(rows.join(found)[lambda r: r["refused"].isna()], args.column, args.filter or "at random")


def add(rows, column, drawn="at random"):
    """Writes the predictions `tpot` and `ttft` of rows into board.csv, with their errors, as `column`."""
    rows = rows.set_index("id")
    new = rows[["half", "suspect"]].assign(drawn=drawn)
    for what, measured in MEASURED.items():
        new[f"{column}_{what}_ms"] = rows[what].astype(float).round(3)
        new[f"{column}_{what}_error"] = (100 * (rows[what] / rows[measured] - 1)).astype(float).round(2)
    if BOARD.exists():
        old = pd.read_csv(BOARD, keep_default_na=False, na_values=[""]).set_index("id")
        old["suspect"] = old["suspect"].fillna("")
        # A row that was drawn at random stays one of the random sample.
        new["drawn"] = old["drawn"].reindex(new.index).fillna(new["drawn"])
        new = new.combine_first(old)[[*old.columns, *(c for c in new.columns if c not in old.columns)]]
    new.sort_index().to_csv(BOARD)
    print(f"{len(rows)} rows; {words_of(new[new['half'] == 'judge'][f'{column}_tpot_error'])} on the judged half")


def words_of(errors):
    errors = errors.dropna()
    return f"{errors.abs().median():.1f} / {errors.mean():+.1f} / {errors.abs().quantile(0.9):.0f}" if len(errors) else "–"


def columns_of(board):
    return [c.removesuffix("_tpot_error") for c in board.columns if c.endswith("_tpot_error")]


def read(args):
    """The board, with the columns that are asked for."""
    board = pd.read_csv(BOARD)
    others = set(columns_of(board)) - set(args.columns or columns_of(board))
    return board.drop(columns=[c for c in board.columns if c.split("_")[0] in others])


def judged(board):
    """The rows of the judged half that all columns predict."""
    errors = [f"{name}_tpot_error" for name in columns_of(board)]
    return board[(board["half"] == "judge") & board[errors].notna().all(axis=1)]


def tables(board):
    """The tables of errors as lines of Markdown."""
    columns = columns_of(board)
    heads = [f"{name}, {what.upper()}" for what in MEASURED for name in columns]
    yield "| class | rows | " + " | ".join(heads) + " |"
    yield "|---|--:|" + "--:|" * len(heads)
    sizes = pd.cut(board["batch_size"], SIZES, labels=LABELS).astype(str).rename("batch")
    llama = board["model_path"].eq("meta-llama/Llama-3.1-8B-Instruct") & board["precision"].isna() & board["tp_size"].eq(1)
    ranks = board[board["attention_dp_size"] > 1]
    classes = [("Llama-3.1-8B, bf16, one GPU: all rows", board[llama]), ("data-parallel attention: all rows", ranks)]
    classes += [(f"… {name}", part) for by in ("backend", "system") for name, part in ranks.groupby(by)]
    board, sizes = board[board["drawn"] == "at random"], sizes[board["drawn"] == "at random"]
    classes += [("drawn at random", board), ("… without suspect rows", board[board["suspect"].isna()])]
    models = board["model_path"].str.split("/").str[-1].rename("model")
    for by in (board["system"], board["backend"], models, sizes):
        parts = dict(list(board.groupby(by)))
        classes += [(f"{by.name} {name}", parts[name]) for name in (LABELS if by is sizes else parts) if name in parts]
    for name, part in classes:
        cells = [words_of(part[f"{c}_{what}_error"]) for what in MEASURED for c in columns]
        if len(part) >= 5:
            yield f"| {name} | {len(part)} | " + " | ".join(cells) + " |"


def show(args):
    measured = table.read(table.package_of(args.package)).set_index("id")
    print("\n".join(tables(judged(read(args)).set_index("id").join(measured))))


def figure(args):
    """The share of rows within an error, a line for each prediction."""
    board = judged(read(args))
    board = board[board["drawn"] == "at random"]
    left, top, width, height, most = 56, 16, 560, 300, 60
    x = lambda error: left + width * error / most
    y = lambda share: top + height * (1 - share)
    parts = []
    for share in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<path d="M{left} {y(share):.1f}H{left + width}" stroke="#8884"/>')
        parts.append(f'<text x="{left - 8}" y="{y(share) + 4:.1f}" text-anchor="end">{share:.0%}</text>')
    for error in range(0, most + 1, 10):
        parts.append(f'<text x="{x(error):.1f}" y="{top + height + 20}" text-anchor="middle">{error}</text>')
    parts.append(f'<text x="{left + width / 2}" y="{top + height + 42}" text-anchor="middle">error of TPOT, % (without sign)</text>')
    for name, colour in zip(columns_of(board), ("#777777", "#2a6fbb", "#d1495b")):
        errors = board[f"{name}_tpot_error"].abs().sort_values()
        points = [(e, (i + 1) / len(errors)) for i, e in enumerate(errors) if e <= most]
        line = "L".join(f"{x(e):.1f} {y(share):.1f}" for e, share in points)
        parts.append(f'<path d="M{line}" fill="none" stroke="{colour}" stroke-width="2.5"/>')
        median = errors.median()
        parts.append(f'<text x="{x(median) + 8:.1f}" y="{y(0.5) + 16:.1f}" fill="{colour}">{name}: half within {median:.0f} %</text>')
    label = "Share of servers whose TPOT is predicted within an error"
    text = "\n".join(parts)
    args.out.write_text(
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 640 370" role="img" aria-label="{label}" '
        f'font-family="sans-serif" font-size="13" fill="#777">\n{text}\n</svg>\n'
    )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=["run", "show", "figure"])
    parser.add_argument("--package", help="the folder aiconfigurator_core; default: the installed package")
    parser.add_argument("--binary", default="foretoken")
    parser.add_argument("--half", choices=["judge", "tune", "both"], default="both")
    parser.add_argument("--filter", help="a query over the rows, such as 'tp_size == 1'")
    parser.add_argument("--count", type=int, help="rows to draw; default: all")
    parser.add_argument("--set", action="append", default=[], help="a setting of every experiment")
    parser.add_argument("--column", default="floors", help="the name of the prediction in board.csv")
    parser.add_argument("--kernels", action="store_true", help="pass times from the package's kernels, not from a roofline")
    parser.add_argument("--servers", action="store_true", help="with the settings and front ends of servers.py")
    parser.add_argument("--columns", nargs="*", help="the predictions to show; default: all")
    parser.add_argument("--ids", action="store_true", help="the rows of board.csv")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=pathlib.Path, default=table.ROOT / "docs" / "images" / "silicon.svg")
    args = parser.parse_args()
    {"run": run, "show": show, "figure": figure}[args.command](args)


if __name__ == "__main__":
    main()
