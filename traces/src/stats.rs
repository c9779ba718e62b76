//! Statistics of a trace: counts, rates, burstiness, lengths, shared prefixes, how often draft tokens were right.
//!
//! Definitions. Rate = [`arrival_rate`]; in a given span, requests / duration. Bins of w seconds start at the span's
//! start, and only whole bins count. Index of dispersion IDC(w) = variance / mean of the numbers of requests in the
//! bins; a Poisson process has 1. IAT CV = standard deviation / mean of the gaps between arrivals. Variances are
//! divided by n, the number of values. Quantiles interpolate linearly (numpy's default).

use crate::error::TraceError;
use crate::format::TraceFormat;
use crate::readers::{Gives, Trace, read};
use crate::trace_spec::TraceSpec;
use foretoken_sim::{RequestId, Time, Workload, arrival_rate};
use serde::Serialize;
use std::collections::HashSet;

/// The percentages at which quantiles of the prompt and output lengths are reported.
const PERCENT: [f64; 27] = [
    0.0, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 35.0, 40.0, 45.0, 50.0, 55.0, 60.0, 65.0, 70.0, 75.0, 80.0,
    85.0, 90.0, 95.0, 97.5, 99.0, 99.5, 100.0,
];

/// Widths of the bins of time in which arrivals are counted, seconds.
const WIDTHS_S: [f64; 3] = [1.0, 5.0, 60.0];

/// Statistics of a trace. A value that the trace does not have is `None`: for example the lengths, if the trace has
/// arrival times alone.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct TraceStats {
    /// Format of the trace file; `None` if the statistics are not of a file.
    pub format: Option<TraceFormat>,
    /// Number of rows in the trace file; `None` if the statistics are not of a file.
    pub rows: Option<u64>,
    /// Number of requests to which the statistics belong.
    pub requests: usize,
    /// Messages with counts of the trace's rows that were left out or changed.
    pub notes: Vec<String>,
    /// Rate and burstiness of the arrivals; `None` if the trace has no arrival times.
    pub arrivals: Option<ArrivalStats>,
    /// Statistics of the prompt lengths, tokens; `None` if the trace has no lengths.
    pub prompt: Option<LengthStats>,
    /// Statistics of the output lengths, tokens; `None` if the trace has no lengths.
    pub output: Option<LengthStats>,
    /// Share of all prompt tokens that lie in full prefix blocks which an earlier request also had: the hit rate of an
    /// unlimited prefix cache.
    pub prefix_shared: Option<f64>,
    /// Number of requests in each category, in the order of the workload's list of categories.
    pub categories: Vec<(String, usize)>,
    /// Statistics of the trace's recordings: at which share of output positions a token was drafted, and how often it
    /// was right. `None` if the trace has no recordings.
    pub recorded: Option<RecordedStats>,
    /// Number of requests with their own limit on time per output token.
    pub with_slo: usize,
}

/// When and how unevenly the requests of a trace arrive.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ArrivalStats {
    /// First arrival, seconds on the trace's clock.
    pub first_s: f64,
    /// Last arrival, seconds on the trace's clock.
    pub last_s: f64,
    /// Length of the time span in which arrivals are measured, seconds. By default the span is from the first to the
    /// last arrival.
    pub duration_s: f64,
    /// Arrivals per second: gaps / duration from the first to the last arrival, or requests / duration in a given span.
    /// `None` if the duration is 0.
    pub mean_rate: Option<f64>,
    /// Coefficient of variation of the gaps between arrivals.
    pub iat_cv: Option<f64>,
    /// The arrivals counted in bins of 1, 5 and 60 s: one entry for each bin width that fits into the time span.
    pub bins: Vec<BinStats>,
}

/// The numbers of arrivals in bins of one width: their lowest, mean and highest value as rates per second, and their
/// dispersion.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct BinStats {
    /// Width of the bins of time, seconds.
    pub width_s: f64,
    /// Number of whole bins in the measured time span.
    pub bins: usize,
    /// Lowest number of arrivals in a bin, as requests/s.
    pub min_rate: f64,
    /// Mean number of arrivals in a bin, as requests/s.
    pub mean_rate: f64,
    /// Highest number of arrivals in a bin, as requests/s.
    pub max_rate: f64,
    /// Index of dispersion of the numbers of arrivals in the bins: their variance over their mean. `None` with fewer
    /// than two bins, or if no request arrives in them.
    pub dispersion: Option<f64>,
}

/// Statistics of the prompt lengths or of the output lengths of a trace, in tokens.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LengthStats {
    /// Mean length of the trace's requests, tokens.
    pub mean: f64,
    /// Sum of the lengths of all requests, tokens.
    pub total: u64,
    /// Quantiles of the lengths as (percent, tokens), from 0 (the shortest) to 100 (the longest).
    pub quantiles: Vec<(f64, f64)>,
}

/// Statistics of recordings, which say at which output positions the draft token was right.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RecordedStats {
    /// Number of requests that have a recording of which draft tokens were right.
    pub requests: usize,
    /// Share of the output positions of the recorded requests at which a token was drafted.
    pub known: f64,
    /// Share of the positions with a draft token at which it was right.
    pub right: f64,
}

/// Reads a file and computes its statistics.
///
/// # Errors
/// The errors of [`read`].
pub fn inspect(spec: &TraceSpec) -> Result<TraceStats, TraceError> {
    // AdaServe's latency limits are multiples of the time per token of an unloaded server. No statistic depends on this
    // time, so it is set to 1 s.
    let trace = read(spec, Some(1.0))?;
    Ok(TraceStats::of_trace(&trace))
}

impl TraceStats {
    /// The statistics of a trace that was read from a file.
    pub fn of_trace(trace: &Trace) -> TraceStats {
        TraceStats {
            format: Some(trace.format),
            rows: Some(trace.rows),
            notes: trace.notes.clone(),
            ..Self::of(&trace.workload, trace.gives, None)
        }
    }

    /// The statistics of a workload. `gives` says whether its arrival times and lengths come from a trace or are
    /// placeholders. `span` = (start, end), in seconds, sets the start of the bins and the duration; `None` means from
    /// the first to the last arrival. Arrivals outside of the span count in the mean rate but not in the bins.
    pub fn of(w: &Workload, gives: Gives, span: Option<(f64, f64)>) -> TraceStats {
        let lengths = |column: &[u32]| (gives.lengths && !column.is_empty()).then(|| LengthStats::of(column));
        let mut categories: Vec<(String, usize)> = w.categories.iter().map(|name| (name.clone(), 0)).collect();
        for &category in &w.category {
            if let Some((_, count)) = categories.get_mut(category as usize) {
                *count += 1;
            }
        }
        TraceStats {
            format: None,
            rows: None,
            requests: w.len(),
            notes: Vec::new(),
            arrivals: (gives.arrivals && !w.is_empty()).then(|| ArrivalStats::of(&w.arrival, span)),
            prompt: lengths(&w.prompt_len),
            output: lengths(&w.output_len),
            prefix_shared: prefix_shared(w),
            categories,
            recorded: recorded(w),
            with_slo: w.slo_tpot_s.iter().filter(|s| s.is_finite()).count(),
        }
    }
}

impl ArrivalStats {
    fn of(arrivals: &[Time], span: Option<(f64, f64)>) -> ArrivalStats {
        let (first_s, last_s) = (arrivals[0].as_s(), arrivals[arrivals.len() - 1].as_s());
        let (start_s, end_s) = span.unwrap_or((first_s, last_s));
        let duration_s = end_s - start_s;
        let gaps: Vec<f64> = arrivals.windows(2).map(|pair| (pair[1] - pair[0]).as_s()).collect();
        let (gap_mean, gap_variance) = mean_variance(&gaps);
        ArrivalStats {
            first_s,
            last_s,
            duration_s,
            mean_rate: match span {
                None => arrival_rate(arrivals.len(), duration_s),
                Some(_) => (duration_s > 0.0).then(|| arrivals.len() as f64 / duration_s),
            },
            iat_cv: (gaps.len() > 1 && gap_mean > 0.0).then(|| gap_variance.sqrt() / gap_mean),
            bins: WIDTHS_S.iter().filter_map(|&w| BinStats::of(arrivals, w, start_s, duration_s)).collect(),
        }
    }
}

impl BinStats {
    /// Counts the arrivals in whole bins of `width_s` seconds and computes the statistics of these counts. `None` if
    /// the span is shorter than one bin.
    fn of(arrivals: &[Time], width_s: f64, start_s: f64, duration_s: f64) -> Option<BinStats> {
        // 1e-9 is added so that a rounding error of the division does not lose the last bin of time.
        let bins = (duration_s / width_s + 1e-9).floor() as usize;
        if bins == 0 {
            return None;
        }
        let mut counts = vec![0.0; bins];
        let (start, width) = (Time::from_s(start_s), Time::from_s(width_s).0);
        for &at in arrivals.iter().filter(|&&at| at >= start) {
            if let Some(count) = counts.get_mut(((at - start).0 / width) as usize) {
                *count += 1.0;
            }
        }
        let (mean, variance) = mean_variance(&counts);
        let rate = |count: f64| count / width_s;
        Some(BinStats {
            width_s,
            bins,
            min_rate: rate(counts.iter().copied().fold(f64::INFINITY, f64::min)),
            mean_rate: rate(mean),
            max_rate: rate(counts.iter().copied().fold(0.0, f64::max)),
            dispersion: (bins > 1 && mean > 0.0).then(|| variance / mean),
        })
    }
}

impl LengthStats {
    fn of(column: &[u32]) -> LengthStats {
        let mut sorted = column.to_vec();
        sorted.sort_unstable();
        let total = sorted.iter().map(|&x| u64::from(x)).sum::<u64>();
        let quantiles = PERCENT.map(|p| (p, quantile(&sorted, p / 100.0))).to_vec();
        LengthStats { mean: total as f64 / sorted.len() as f64, total, quantiles }
    }

    /// The length in tokens at `percent`, one of the reported percentages; `None` for any other percentage.
    pub fn at(&self, percent: f64) -> Option<f64> {
        self.quantiles.iter().find(|q| q.0 == percent).map(|q| q.1)
    }
}

fn quantile(sorted: &[u32], q: f64) -> f64 {
    let place = q * (sorted.len() - 1) as f64;
    let (below, above) = (f64::from(sorted[place.floor() as usize]), f64::from(sorted[place.ceil() as usize]));
    below + (above - below) * place.fract()
}

/// The mean and the variance of `values`. The variance is the sum of squared deviations divided by the number of
/// values. Both are 0 without values.
fn mean_variance(values: &[f64]) -> (f64, f64) {
    let n = values.len().max(1) as f64;
    let mean = values.iter().sum::<f64>() / n;
    (mean, values.iter().map(|v| (v - mean) * (v - mean)).sum::<f64>() / n)
}

fn prefix_shared(w: &Workload) -> Option<f64> {
    if w.prefix_ids.is_empty() {
        return None;
    }
    let mut seen = HashSet::new();
    let mut shared = 0u64;
    for id in 0..w.len() as RequestId {
        let blocks = w.prefix(id);
        // In a workload of sessions, a request's prefix ids also cover its output. Only the blocks of the prompt are
        // counted.
        let prompt = (w.prompt_len[id as usize] / w.prefix_block.max(1)) as usize;
        shared += blocks.iter().take(prompt).take_while(|b| seen.contains(*b)).count() as u64;
        seen.extend(blocks.iter().copied());
    }
    let prompts: u64 = w.prompt_len.iter().map(|&p| u64::from(p)).sum();
    Some((shared * u64::from(w.prefix_block)) as f64 / prompts as f64)
}

fn recorded(w: &Workload) -> Option<RecordedStats> {
    let used = || w.recording.iter().filter_map(|&r| w.recordings.get(r as usize));
    let (mut positions, mut known, mut right) = (0u64, 0u64, 0u64);
    for bit in used().flat_map(|r| &r.bits) {
        positions += 1;
        known += u64::from(bit.is_some());
        right += u64::from(*bit == Some(true));
    }
    (known > 0).then(|| RecordedStats {
        requests: used().count(),
        known: known as f64 / positions as f64,
        right: right as f64 / known as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretoken_sim::Request;

    const ALL: Gives = Gives { arrivals: true, lengths: true };

    #[test]
    fn bins_gaps_and_quantiles_by_hand() {
        let w: Workload =
            [0.0, 0.5, 1.5, 3.5].iter().zip(1..).map(|(&t, i)| Request::new(Time::from_s(t), i * 10, i)).collect();
        let stats = TraceStats::of(&w, ALL, Some((0.0, 4.0)));
        let arrivals = stats.arrivals.expect("arrivals");
        assert_eq!((arrivals.duration_s, arrivals.mean_rate), (4.0, Some(1.0)));
        // The gaps between arrivals are 0.5, 1 and 2 s: their mean is 7/6, and the sum of their squared deviations is
        // 42/36, over 3 gaps.
        assert!((arrivals.iat_cv.expect("three gaps") - (14f64 / 36.0).sqrt() / (7.0 / 6.0)).abs() < 1e-12);
        // The bins of 1 s have 2, 1, 0 and 1 arrivals: mean 1, variance 1/2, so the index of dispersion is 1/2.
        assert_eq!(arrivals.bins.len(), 1, "no whole bin of 5 s");
        assert_eq!((arrivals.bins[0].min_rate, arrivals.bins[0].max_rate), (0.0, 2.0));
        assert_eq!(arrivals.bins[0].dispersion, Some(0.5));
        let prompt = stats.prompt.expect("lengths");
        assert_eq!((prompt.mean, prompt.at(50.0), prompt.at(100.0)), (25.0, Some(25.0), Some(40.0)));
    }

    #[test]
    fn shared_prefixes_count_leading_blocks_seen_before() {
        let request = |prefix: &[u64]| Request { prefix: prefix.to_vec(), ..Request::new(Time::ZERO, 1024, 1) };
        let mut w: Workload = [request(&[1, 2]), request(&[1, 3]), request(&[9, 2])].into_iter().collect();
        w.prefix_block = 512;
        // The requests have the prefix blocks 1 2, 1 3 and 9 2. Only block 1 of the second request counts as shared.
        // Block 2 of the third request does not count, because block 9, which is before it in the prompt, is new.
        assert_eq!(prefix_shared(&w), Some(512.0 / 3072.0));
    }
}
