use super::*;
use foretoken_sim::Stream;

#[test]
fn the_scan_walks_down_the_targets_path() {
    // Tokens 10 and 11 are children of the root, tokens 12 and 13 are children of token 11, and token 14 is a child of
    // token 12.
    let tokens = [10, 11, 12, 13, 14];
    let parents = [ROOT, ROOT, 1, 1, 2];
    let tree = Tree { first: 4, tokens: &tokens, parents: &parents };
    let scan = |choices: [u32; 6]| greedy(&tree, |row| choices[row - 4]);
    assert_eq!(scan([11, 0, 12, 14, 0, 99]), Accepted { nodes: vec![1, 2, 4], next: 99 });
    assert_eq!(scan([11, 0, 13, 14, 7, 99]), Accepted { nodes: vec![1, 3], next: 7 });
    assert_eq!(scan([10, 12, 0, 0, 0, 0]), Accepted { nodes: vec![0], next: 12 });
    assert_eq!(scan([5, 0, 0, 0, 0, 0]), Accepted { nodes: vec![], next: 5 });
    let none = Tree { first: 0, tokens: &[], parents: &[] };
    assert_eq!(greedy(&none, |_| 3), Accepted { nodes: vec![], next: 3 });
}

#[test]
fn nothing_of_probability_zero_is_drawn() {
    let p = [0.0, 0.5, 0.0, 0.5, 0.0];
    for u in [0.0, 0.499, 0.5, 0.999_999_999_999_999_9] {
        assert!([1, 3].contains(&sample(&p, u)), "{u}");
    }
    assert_eq!((sample(&p, 0.499), sample(&p, 0.5)), (1, 3));
}

/// Chi-square test on 10⁶ emitted pairs of tokens. Each chain has two draft tokens, drawn from the draft model's
/// distribution q. The first two emitted tokens must be distributed like two draws from the target's distribution p,
/// where the second draw depends on the first.
#[test]
fn rejection_sampling_keeps_the_targets_distribution() {
    const DRAWS: u64 = 1_000_000;
    const TOKENS: usize = 5;
    // Row 0 is the distribution of the first token. Row 1 + t is the distribution after token t. As the first token,
    // the target never emits token 2 and the draft model never proposes token 4.
    let p: [[f32; TOKENS]; 6] = [
        [0.1, 0.4, 0.0, 0.3, 0.2],
        [0.5, 0.1, 0.1, 0.1, 0.2],
        [0.0, 0.25, 0.25, 0.25, 0.25],
        [0.2; TOKENS],
        [0.7, 0.05, 0.05, 0.1, 0.1],
        [0.3, 0.3, 0.2, 0.1, 0.1],
    ];
    let q: [[f32; TOKENS]; 6] = [
        [0.3, 0.2, 0.2, 0.3, 0.0],
        [0.2; TOKENS],
        [0.4, 0.1, 0.2, 0.2, 0.1],
        [0.2; TOKENS],
        [0.6, 0.1, 0.1, 0.1, 0.1],
        [0.1, 0.2, 0.2, 0.2, 0.3],
    ];
    let mut counts = [[0u64; TOKENS]; TOKENS];
    let mut accepted = 0;
    for i in 0..DRAWS {
        let drafted = Luck::new(7, Stream::Confidence, i);
        let first = sample(&q[0], drafted.unit(0));
        let second = sample(&q[1 + first as usize], drafted.unit(1));
        let rows = [0, 1 + first as usize, 1 + second as usize];
        let chain = Chain { target: 0, draft: 0, tokens: &[first, second], luck: Luck::new(7, Stream::Right, i) };
        let kept = reject(&chain, |r| &p[rows[r]], |r| &q[rows[r]]);
        accepted += kept.nodes.len();
        let pair = match kept.nodes.len() {
            // If no draft token is accepted, the second emitted token comes from the target's next pass.
            0 => (kept.next, sample(&p[1 + kept.next as usize], drafted.unit(2))),
            1 => (first, kept.next),
            _ => (first, second),
        };
        counts[pair.0 as usize][pair.1 as usize] += 1;
    }
    let (mut chi_square, mut cells) = (0.0, 0);
    for (a, row) in counts.iter().enumerate() {
        for (b, &count) in row.iter().enumerate() {
            let expected = DRAWS as f64 * f64::from(p[0][a]) * f64::from(p[1 + a][b]);
            if expected == 0.0 {
                assert_eq!(count, 0, "a pair the target never emits");
                continue;
            }
            chi_square += (count as f64 - expected).powi(2) / expected;
            cells += 1;
        }
    }
    // Each of the 19 cells of the χ² test is a pair of tokens that the target can emit, so χ² has 18 degrees of
    // freedom. χ² exceeds 42.3 for one seed in a thousand.
    assert_eq!(cells, 19);
    assert!(chi_square < 42.3, "{chi_square}");
    // The expected share of chains whose first draft token is accepted: Σ min(p, q) = 0.1 + 0.2 + 0.3.
    let first = 0.6;
    assert!(accepted as f64 > first * DRAWS as f64 && (accepted as f64) < 2.0 * first * DRAWS as f64, "{accepted}");
}
