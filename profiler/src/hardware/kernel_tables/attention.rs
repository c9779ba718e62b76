//! Attention over KV: decodes by the number of requests and the context of each, prompts by their query-key pairs.

use super::curve::{Curve, Grid};
use super::table::Table;
use super::table_set::{Missing, TableSet};

/// The attention of one layer on one GPU.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Attention {
    /// One new token of each request, by requests and context with the new token.
    pub(super) decode: Grid,
    /// What the tokens of a pass beyond one of each request add, by their query-key pairs.
    pub(super) pairs: Curve,
}

/// The heads of one GPU.
#[derive(Clone, Copy, Debug)]
pub(super) struct Heads {
    pub(super) heads: u32,
    pub(super) kv_heads: u32,
    pub(super) dim: u32,
    pub(super) window: Option<u32>,
    /// Whether the KV cache has 8 bits.
    pub(super) fp8: bool,
}

/// The rows of a table that stand for the attention.
struct Picked {
    /// Requests, context (of a prompt: its tokens) and seconds.
    points: Vec<(f64, f64, f64)>,
    /// How many times as many requests, with this part of the heads each.
    parts: u32,
    /// The measured query heads.
    heads: u32,
    window: i64,
}

/// Pairs of a prompt of `n` tokens, beyond the pair of its first token.
pub(super) fn pairs_of(n: f64, window: Option<u32>) -> f64 {
    let whole = n * (n + 1.0) / 2.0;
    window.map_or(whole, |w| whole.min(f64::from(w) * n)) - 1.0
}

pub(super) fn read(tables: &TableSet, heads: Heads) -> Result<Attention, Missing> {
    let Heads { heads: queries, kv_heads, dim, window, fp8 } = heads;
    let kv = if fp8 { "fp8" } else { "bfloat16" };
    let columns = ["batch_size", "isl", "step", "num_heads", "num_key_value_heads", "head_dim", "window_size"];
    let what = |rule: &str| {
        let window = window.map_or(String::new(), |w| format!(", window {w}"));
        format!("{rule} with {queries} heads, {kv_heads} of KV, {dim} wide, {kv} KV{window}")
    };
    // Heads are independent: the attention of f times as many heads over b requests is that of f times b requests. So
    // heads that are not in the table are looked for in parts.
    let parts: Vec<u32> =
        (0..8).map(|i| 1 << i).filter(|f| kv_heads.is_multiple_of(*f) && queries.is_multiple_of(*f)).collect();
    let windows: Vec<i64> =
        [window.map_or(0, i64::from), 0].into_iter().take(1 + usize::from(window.is_some())).collect();
    let choices: Vec<(u32, i64)> = windows.iter().flat_map(|&w| parts.iter().map(move |&f| (f, w))).collect();
    let of_shape = |table: &Table, decode: bool, heads: u32, f: u32, w: i64| {
        let shape = [
            ("num_heads", i64::from(heads / f)),
            ("num_key_value_heads", i64::from(kv_heads / f)),
            ("head_dim", i64::from(dim)),
            ("window_size", w),
        ];
        let of = |name: &str, row: usize| table.number(name, row) as f64;
        let (shapes, words) = (&shape, &[("kv_cache_dtype", kv)]);
        let rows = table.rows_where(shapes, words);
        let points: Vec<(f64, f64, f64)> = match decode {
            true => rows
                .map(|row| (of("batch_size", row) / f64::from(f), of("step", row) + 1.0, table.seconds(row)))
                .collect(),
            // A prompt's arithmetic is in proportion to the query heads.
            false => rows
                .filter(|&row| table.number("batch_size", row) == i64::from(f) && table.number("step", row) == 0)
                .map(|row| (1.0, of("isl", row), table.seconds(row) * f64::from(queries) / f64::from(heads)))
                .collect(),
        };
        (!points.is_empty()).then_some(Picked { points, parts: f, heads, window: w })
    };
    // Else the next larger number of query heads over the same KV. A decode reads KV: measured neighbours differ by 1 %
    // in the median, by 5 % at the 90th percentile.
    let pick = |table: &Table, decode: bool| {
        let exact = choices.iter().find_map(|&(f, w)| of_shape(table, decode, queries, f, w));
        exact.or_else(|| {
            let alike = [("num_key_value_heads", i64::from(kv_heads)), ("head_dim", i64::from(dim))];
            let rows = table.rows_where(&alike, &[]);
            let more = rows.map(|row| table.number("num_heads", row)).filter(|&n| n > i64::from(queries)).min()?;
            windows.iter().find_map(|&w| of_shape(table, decode, u32::try_from(more).ok()?, 1, w))
        })
    };
    let words = ["kv_cache_dtype"];
    let engine = tables.engine;
    let decodes = tables.first(
        ("attention", "generation_attention"),
        engine,
        (&columns, &words),
        &what("attention of a decode"),
        |table| pick(table, true),
    )?;
    let prompts = tables.first(
        ("attention", "context_attention"),
        engine,
        (&columns, &words),
        &what("attention of a prompt"),
        |table| pick(table, false),
    )?;
    let (f, held) = (decodes.parts, decodes.heads);
    if f > 1 {
        tables.note(format!(
            "attention of {queries} heads, {kv_heads} of KV: as of {f} times the requests with {} and {}",
            queries / f,
            kv_heads / f
        ));
    }
    if held > queries {
        tables.note(format!(
            "attention of {queries} heads, {kv_heads} of KV: a decode as of {held} heads, a prompt in proportion"
        ));
    }
    let mut decode = Grid::new(decodes.points);
    if let (Some(window), 0) = (window, decodes.window) {
        tables
            .note(format!("attention in a window of {window} tokens: as without a window, of at most {window} tokens"));
        let most = f64::from(window);
        let points = decode.requests().flat_map(|b| decode.contexts().into_iter().map(move |c| (b, c)));
        decode = Grid::new(points.map(|(b, c)| (b, c, decode.at(b, c.min(most)))).collect());
    }
    let curve = Curve::new(prompts.points.into_iter().map(|(_, n, seconds)| (n, seconds)).collect()).cleaned().0;
    Ok(Attention { decode, pairs: pairs(&curve, window, prompts.window != 0) })
}

/// What query-key pairs add: a prompt's attention beyond that of the smallest prompts.
fn pairs(prompts: &Curve, window: Option<u32>, in_window: bool) -> Curve {
    // Kernels of less than 128 tokens take the time of a launch.
    const FLOOR: f64 = 128.0;
    let sizes: Vec<f64> = prompts.sizes().filter(|n| *n >= FLOOR).collect();
    let seconds = |n: f64| match (window, in_window) {
        // Without a table for the window, its pairs take the time of as many pairs of a shorter prompt.
        (Some(_), false) => prompts.at((2.0 * pairs_of(n, window)).sqrt()),
        _ => prompts.at(n),
    };
    let least = seconds(FLOOR);
    let points = sizes.iter().map(|&n| (pairs_of(n, window), (seconds(n) - least).max(0.0)));
    Curve::new([(0.0, 0.0)].into_iter().chain(points).collect()).rising()
}
