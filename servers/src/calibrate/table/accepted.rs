//! Acceptance by draft position in a round, from the column `accepted` of a table of benchmark results.

use super::cell::{Accepted, Cell};
use crate::calibrate::acceptance::Position;

/// The share of rounds in which the draft token at each position was accepted, up to the longest draft length of the
/// table.
///
/// If rows of a draft length have shares by position, these shares are used. Otherwise the shares come from the mean
/// numbers of accepted draft tokens. The means of two draft lengths differ by the sum of the shares at the positions
/// between the two lengths. These shares are assumed to fall by one constant factor from position to position.
pub fn survivals(cells: &[Cell]) -> Vec<f64> {
    let mut lengths: Vec<u32> = cells.iter().filter(|c| c.k > 0 && c.accepted.is_some()).map(|c| c.k).collect();
    lengths.sort_unstable();
    lengths.dedup();
    let mut known: Vec<f64> = Vec::new();
    for &k in &lengths {
        let reported = || cells.iter().filter(move |c| c.k == k).filter_map(|c| c.accepted.as_ref());
        let by_position: Vec<&Vec<f64>> = reported()
            .filter_map(|a| match a {
                Accepted::ByPosition(shares) => Some(shares),
                Accepted::Mean(_) => None,
            })
            .collect();
        if !by_position.is_empty() {
            for at in known.len()..k as usize {
                known.push(by_position.iter().map(|shares| shares[at]).sum::<f64>() / by_position.len() as f64);
            }
            continue;
        }
        let means = reported().map(Accepted::mean);
        let mean = means.clone().sum::<f64>() / means.count() as f64;
        let before = known.iter().sum::<f64>();
        let last = known.last().copied().unwrap_or(1.0);
        let more = k as usize - known.len();
        let factor = factor(last, more, (mean - before).max(0.0));
        known.extend((1..=more).map(|i| last * factor.powi(i as i32)));
    }
    known
}

/// The factor r, from 0 to 1, with `last` · (r + r² + … + rⁿ) = `sum`. `last` is the share of accepted draft tokens at
/// the last known position, and the share falls by r at each of the next `n` positions. 0 or 1 if no factor gives the
/// sum.
fn factor(last: f64, n: usize, sum: f64) -> f64 {
    let (mut low, mut high) = (0.0, 1.0);
    for _ in 0..60 {
        let r = (low + high) / 2.0;
        let makes: f64 = (1..=n).map(|i| last * f64::powi(r, i as i32)).sum();
        (low, high) = if makes < sum { (r, high) } else { (low, r) };
    }
    (low + high) / 2.0
}

/// P(accepted | all draft tokens before it in the step were accepted), by draft position. `survivals` has the share of
/// all rounds that accepted the draft token at each position.
pub fn hazards(survivals: &[f64]) -> Vec<f64> {
    let before = [1.0].into_iter().chain(survivals.iter().copied());
    survivals.iter().zip(before).map(|(s, before)| if before > 0.0 { (s / before).min(1.0) } else { 0.0 }).collect()
}

/// Acceptance by draft position for `calibration.json`. The number of rounds is estimated from the number of tokens: a
/// round gives its accepted draft tokens and one more token. `requests(cell)` is the number of requests of a row of the
/// table.
pub fn positions(survivals: &[f64], rates: &[f64], cells: &[Cell], requests: impl Fn(&Cell) -> u32) -> Vec<Position> {
    let rounds = |depth: usize| -> f64 {
        let those = cells.iter().filter(|c| c.k as usize > depth && c.accepted.is_some());
        those
            .map(|c| {
                let mean = c.accepted.as_ref().map_or(0.0, Accepted::mean);
                f64::from(requests(c)) * (c.output - 1.0).max(0.0) / (1.0 + mean)
            })
            .sum()
    };
    let position = |at: usize| {
        let before = if at == 0 { 1.0 } else { survivals.get(at - 1).copied().unwrap_or(0.0) };
        let (reached, seen) = (rounds(at) * before, at < survivals.len());
        Position {
            position: at + 1,
            reached: if seen { reached.round() as u64 } else { 0 },
            accepted: if seen { (reached * rates[at]).round() as u64 } else { 0 },
            rate: rates[at],
            extrapolated: !seen,
        }
    };
    (0..rates.len()).map(position).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::calibrate::table::read::read;

    fn cells(rows: &str) -> Vec<Cell> {
        read("t.csv", &format!("clients,k,input,output,requests,tok_s,accepted\n{rows}")).unwrap()
    }

    #[test]
    fn means_of_every_length_give_each_position() {
        let s = survivals(&cells("1,1,9,9,,5,0.5\n1,2,9,9,,5,0.75\n1,4,9,9,,5,0.9375\n"));
        let wanted = [0.5, 0.25, 0.125, 0.0625];
        assert!(s.iter().zip(wanted).all(|(a, b)| (a - b).abs() < 1e-9) && s.len() == 4, "{s:?}");
        let h = hazards(&s);
        assert!(h.iter().all(|x| (x - 0.5).abs() < 1e-9), "{h:?}");
    }

    #[test]
    fn shares_of_one_length_fall_by_one_factor() {
        let s = survivals(&cells("1,3,9,9,,5,0.875\n4,3,9,9,,5,0.875\n"));
        assert!(s.iter().zip([0.5, 0.25, 0.125]).all(|(a, b)| (a - b).abs() < 1e-9), "{s:?}");
    }

    #[test]
    fn shares_by_position_are_taken_as_they_are() {
        let s = survivals(&cells("1,3,9,9,,5,0.8;0.5;0.2\n4,3,9,9,,5,0.6;0.3;0.2\n"));
        assert!(s.iter().zip([0.7, 0.4, 0.2]).all(|(a, b)| (a - b).abs() < 1e-9), "{s:?}");
        assert_eq!(survivals(&cells("1,0,9,9,,5,\n")), Vec::<f64>::new());
    }

    #[test]
    fn rounds_are_counted_from_tokens() {
        let table = cells("1,2,9,11,100,5,0.6;0.4\n");
        let s = survivals(&table);
        let all = positions(&s, &[0.6, 2.0 / 3.0, 0.5], &table, |c| c.requests.unwrap());
        // 100 requests with 10 output tokens after the first, at 2 tokens per round, have 500 rounds.
        assert_eq!((all[0].reached, all[0].accepted, all[1].reached, all[1].accepted), (500, 300, 300, 200));
        assert!(all[2].extrapolated && all[2].reached == 0);
    }
}
