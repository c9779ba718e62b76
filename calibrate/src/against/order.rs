//! Which draft length is faster at the same load, as observed and as predicted.

use super::comparison::{Cell, Order};

/// The order at every load that has several lengths with decided repeats.
pub fn orders(cells: &[Cell]) -> Vec<Order> {
    let mut loads: Vec<&str> = cells.iter().map(|c| c.load.as_str()).collect();
    loads.dedup();
    let of = |load: &str| {
        // Length, observed, predicted, distance of repeats.
        let rows: Vec<(u32, f64, f64, f64)> = cells
            .iter()
            .filter(|c| c.load == load && c.decided)
            .filter_map(|c| c.row("e2e mean").map(|r| (c.k, r.median(), r.predicted, r.spread)))
            .collect();
        order(load, &rows)
    };
    loads.into_iter().filter_map(of).collect()
}

fn order(load: &str, rows: &[(u32, f64, f64, f64)]) -> Option<Order> {
    if rows.len() < 2 {
        return None;
    }
    let by = |of: fn(&(u32, f64, f64, f64)) -> f64| {
        let mut sorted = rows.to_vec();
        sorted.sort_by(|a, b| of(a).total_cmp(&of(b)));
        sorted.iter().map(|r| r.0).collect()
    };
    let (mut told_apart, mut kept) = (0, 0);
    for (i, a) in rows.iter().enumerate() {
        for b in &rows[..i] {
            if (a.1 - b.1).abs() > a.3.max(b.3) * a.1.min(b.1) {
                told_apart += 1;
                kept += usize::from((a.1 < b.1) == (a.2 < b.2));
            }
        }
    }
    Some(Order { load: load.to_owned(), observed: by(|r| r.1), predicted: by(|r| r.2), told_apart, kept })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_within_the_noise_do_not_count() {
        let rows = [(0, 10.0, 10.1, 0.02), (1, 8.0, 8.2, 0.02), (2, 8.1, 8.0, 0.03), (3, 9.0, 10.3, 0.01)];
        let o = order("closed 4", &rows).unwrap();
        assert_eq!((o.observed, o.predicted), (vec![1, 2, 3, 0], vec![2, 1, 0, 3]));
        // 1 and 2 are not told apart; 0 and 3 are, and predicted the other way round.
        assert_eq!((o.told_apart, o.kept), (5, 4));
        assert_eq!(order("closed 1", &rows[..1]), None);
    }
}
