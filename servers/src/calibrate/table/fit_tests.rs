//! Which costs a table determines, F tests and errors, against values by hand and of printed tables.

use super::*;

fn cell(load: CellLoad, k: u32) -> Cell {
    Cell {
        line: 2,
        from: None,
        load,
        k,
        input: 300.0,
        output: 150.0,
        requests: None,
        max_num_seqs: None,
        tok_s: Some(200.0),
        ttft_s: None,
        tpot_s: Some(5e-3),
        accepted: None,
    }
}

#[test]
fn throughput_of_open_arrivals_is_no_measured_number() {
    let cells = [cell(CellLoad::Clients(2), 0), Cell { ttft_s: Some(0.1), ..cell(CellLoad::Rate(2.0), 3) }];
    let all: Vec<_> = measured(&cells).iter().map(|m| (m.cell, m.quantity, m.seconds)).collect();
    let (token, ttft, tpot) = (Quantity::TokenTime, Quantity::Ttft, Quantity::Tpot);
    assert_eq!(all, [(0, token, 5e-3), (0, tpot, 5e-3), (1, ttft, 0.1), (1, tpot, 5e-3)]);
}

#[test]
fn errors_are_known_only_with_more_measured_than_fitted_numbers() {
    let solution = |measured, numbers, squares| Solution {
        terms: vec![],
        values: vec![],
        squares,
        numbers,
        measured,
        unsupported: vec![],
    };
    assert_eq!((solution(3, 3, 0.5).sigma(), solution(3, 3, 0.5).t()), (None, None));
    assert_eq!((solution(2, 3, 0.5).sigma(), solution(2, 3, 0.5).t()), (None, None));
    assert_eq!(solution(5, 3, 0.5).sigma(), Some(0.5));
    assert!((solution(5, 3, 0.5).t().unwrap() - 4.303).abs() < 1e-3);
    // Two costs lower the squares from 0.8 to 0.5, with four degrees of freedom left: F = 0.15 · 4 / 0.5.
    let (ratio, needed) = f_test(&solution(8, 4, 0.5), &solution(8, 2, 0.8)).unwrap();
    assert!((ratio - 1.2).abs() < 1e-12 && needed == f_95(2, 4), "{ratio}");
    assert_eq!(f_test(&solution(8, 4, 0.0), &solution(8, 3, 0.0)).unwrap().0, 0.0);
    assert_eq!(f_test(&solution(4, 4, 0.0), &solution(4, 3, 0.1)), None);
}

/// Checks percentiles of F and of Student's t against values of printed tables.
#[test]
fn percentiles_of_f() {
    for (numbers, free, wanted) in [(1, 4, 7.709), (1, 10, 4.965), (2, 4, 6.944), (2, 10, 4.103), (2, 1, 199.5)] {
        let found = f_95(numbers, free);
        assert!((found / wanted - 1.0).abs() < 2e-3, "F({numbers}, {free}): {found}");
    }
}
