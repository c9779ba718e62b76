use super::*;
use crate::shapes::{Density, grid};
use crate::testing::{line, model, room, steps, timed};
use itertools::Itertools;

fn assessed(cost: fn(&Shape) -> f64, noise: f64) -> ModelProfile {
    let timed = timed(Role::Target, cost, noise);
    let reads = context_reads(&timed);
    assess(Role::Target, model("m"), &timed, reads, 1, &[]).unwrap()
}

#[test]
fn a_straight_machine_is_recovered_and_trusted() {
    let p = assessed(line, 0.0);
    for (got, want) in [(p.linear.alpha_s, 1e-7), (p.linear.gamma_s, 50e-6), (p.linear.delta_s, 1e-3)] {
        assert!((got / want - 1.0).abs() < 1e-6, "{got} against {want}");
    }
    assert!(p.held_out.linear.overall < 1e-6 && p.held_out.table.overall < 1e-4, "{:?}", p.held_out);
    assert_eq!((p.noise_cv, p.repeatability), (0.0, 0.0));
    assert_eq!(failures(Role::Target, &p), (vec![], vec![]));
}

#[test]
fn noise_and_outliers_move_the_coefficients_little_and_are_reported() {
    let p = assessed(line, 0.04);
    for (got, want) in [(p.linear.alpha_s, 1e-7), (p.linear.gamma_s, 50e-6), (p.linear.delta_s, 1e-3)] {
        assert!((got / want - 1.0).abs() < 0.05, "{got} against {want}");
    }
    // The noise of the pass times is uniform within ±4 %, so its standard deviation is 2.3 % and its median absolute
    // deviation 2 %. This gives a `noise_cv` of 1.4826 · 2 % = 3 %.
    assert!((0.015..0.04).contains(&p.noise_cv), "{}", p.noise_cv);
    assert!(p.repeatability > 0.002 && p.held_out.linear.overall < 0.04, "{p:?}");
    assert!(failures(Role::Target, &p).0.is_empty());
}

#[test]
fn a_machine_of_steps_is_not_trusted_and_its_table_is_better() {
    let timed = timed(Role::Target, steps, 0.0);
    let borders: Vec<u32> = (0..9).map(|i| 1 << i).collect();
    let p = assess(Role::Target, model("m"), &timed, ContextReads::Once, 1, &borders).unwrap();
    let (distrust, _) = failures(Role::Target, &p);
    assert!(distrust.iter().any(|d| d.contains("held-out verify passes")), "{distrust:?} {:?}", p.held_out);
    let (line, table) = (p.held_out.linear, p.held_out.table);
    assert!(table.overall < 0.1 * line.overall, "{:?}", p.held_out);
}

#[test]
fn the_count_of_context_is_found_from_the_times() {
    let once = |s: &Shape| 1e-3 + 1e-6 * s.pass(ContextReads::Once).context as f64;
    let each = |s: &Shape| 1e-3 + 1e-6 * s.pass(ContextReads::PerPosition).context as f64;
    let reads = |cost| context_reads(&timed(Role::Target, cost, 0.02));
    assert_eq!(reads(once), ContextReads::Once);
    assert_eq!(reads(each), ContextReads::PerPosition);
}

#[test]
fn the_table_fits_a_machine_that_reads_context_once_and_computes_pairs() {
    // The linear cost with α, γ and δ cannot fit these pass times, which depend both on context (counted once per
    // request) and on query-key pairs.
    let both = |s: &Shape| {
        let p = s.pass(ContextReads::Once);
        1e-4 + 4e-5 * p.batched as f64 + 1e-7 * p.context as f64 + 5e-8 * p.pairs as f64
    };
    let p = assessed(both, 0.0);
    assert!(p.held_out.table.overall < 0.01 && p.held_out.linear.overall > 0.01, "{:?}", p.held_out);
}

/// Without errors on held-out verification passes, the costs are not trusted, even if the fit matches exactly.
#[test]
fn a_fit_without_held_out_shapes_is_not_trusted() {
    let mut p = assessed(line, 0.0);
    p.held_out.linear.verify = None;
    let (distrust, _) = failures(Role::Target, &p);
    assert!(distrust.len() == 1 && distrust[0].contains("too few verify passes"), "{distrust:?}");
}

#[test]
fn every_shape_is_held_out_once_but_for_the_ends() {
    let shapes = grid(Role::Target, &room(), Density::Full);
    let folds = folds(&shapes, 7, Role::Target);
    assert_ne!(folds, super::folds(&shapes, 8, Role::Target), "the seed decides");
    for region in Region::ALL {
        let own: Vec<usize> = (0..shapes.len()).filter(|&i| shapes[i].region() == region).collect();
        for fold in 1..=FOLDS {
            let n = own.iter().filter(|&&i| folds[i] == fold).count();
            assert!(n >= 1 && n <= own.len().div_ceil(4), "{region:?}: {n} of {}", own.len());
        }
    }
    let most = shapes.iter().map(Shape::batched).max().unwrap();
    assert!(folds.iter().filter(|&&fold| fold == 0).count() < shapes.len() / 10, "{folds:?}");
    for (shape, &fold) in shapes.iter().zip_eq(&folds) {
        assert!(fold == 0 || shape.batched() < most);
        let seen = |other: (&Shape, &u8)| *other.1 != fold && other.0.batched() == shape.batched();
        assert!(fold == 0 || shapes.iter().zip_eq(&folds).any(seen), "{shape:?}");
    }
}

#[test]
fn spread_and_repeatability_are_robust() {
    let shape = Shape { kind: crate::shapes::Kind::Decode, requests: 1, new: 1, context: 16 };
    let t = Timed { shape, visits: vec![vec![1.0, 1.01, 50.0], vec![1.1, 1.09, 1.1]] };
    assert!((t.median() - 1.095).abs() < 1e-12);
    assert!((t.mean() - 5.3 / 5.0).abs() < 1e-12, "without the outlier");
    assert!((t.repeatability().unwrap() - 0.09 / 1.055).abs() < 1e-12);
    assert!(t.spread() < 0.1, "one outlier is no spread");
    assert_eq!(Timed { shape, visits: vec![vec![1.0]] }.repeatability(), None);
}

#[test]
fn the_median_of_an_even_number_lies_between_two() {
    assert_eq!(median(vec![3.0, 1.0, 2.0]), 2.0);
    assert_eq!(median(vec![4.0, 1.0]), 2.5);
    assert!(median(vec![]).is_nan());
}
