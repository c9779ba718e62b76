//! Dynamo's KV router: its choices, and its random draws by temperature.

use super::*;

/// Recomputes Dynamo's costs for each decision from a list of all requests in flight and their blocks. The router must
/// choose a worker with the least cost. If several workers have the least cost, the router must choose the worker that
/// the random draw names.
#[test]
fn dynamo_kv() {
    struct Booked {
        worker: usize,
        blocks: Vec<Vec<u64>>,
        prefill: u64,
    }
    let mut booked: HashMap<u32, Booked> = HashMap::new();
    let mut cached: HashMap<(usize, Vec<u64>), Time> = HashMap::new();
    let spec = RouterSpec::DynamoKv(Default::default());
    let mut router = spec.build(&context(4, 7, &[]));
    let seen = vec![Seen::default(); 4];
    for state in 0..STATES as u32 {
        let draw = Draw::of(5, state.into());
        let prompt = prompt(draw);
        let now = Time::from_s(0.4 * f64::from(state));
        let request = asked(state, now, &prompt);
        // A block of a prompt that requests may share is named by the ids of all blocks up to it. An unshared block is
        // named by its request and index.
        let total = request.prompt_len.div_ceil(16) as usize;
        let block = |i: usize| match i < request.prefix.len() {
            true => request.prefix[..=i].to_vec(),
            false => vec![u64::MAX, request.id.into(), i as u64],
        };
        let blocks: Vec<Vec<u64>> = (0..total).map(block).collect();
        cached.retain(|_, expires| *expires > now);
        let mut costs = Vec::new();
        let mut overlaps = Vec::new();
        // The look-up in the cache stops at the first prefix that no worker has.
        let longest = (0..request.prefix.len())
            .take_while(|&i| (0..4).any(|w| cached.contains_key(&(w, blocks[i].clone()))))
            .count();
        for worker in 0..4 {
            let own = || booked.values().filter(|b| b.worker == worker);
            let mut active: Vec<&Vec<u64>> = own().flat_map(|b| &b.blocks).collect();
            active.sort();
            active.dedup();
            let shared = blocks.iter().take_while(|b| active.contains(b)).count();
            let overlap = (0..longest).filter(|&i| cached.contains_key(&(worker, blocks[i].clone()))).count();
            let prefill: u64 = own().map(|b| b.prefill).sum();
            let raw = (prefill + u64::from(request.prompt_len)) as f64 / 16.0;
            costs.push((raw - overlap as f64).max(0.0) + (active.len() + total - shared) as f64);
            overlaps.push(overlap);
        }
        let cheapest = costs.iter().copied().fold(f64::INFINITY, f64::min);
        let equals: Vec<usize> = (0..4).filter(|&w| costs[w] == cheapest).collect();
        let expected = equals[uniform(&request, 0, equals.len())];
        let choice = router.route(&request, &seen);
        assert_eq!(choice, expected, "request {state}: {costs:?}");
        for b in &blocks[..request.prefix.len()] {
            cached.insert((choice, b.clone()), now + Time::from_s(120.0));
        }
        let prefill = u64::from(request.prompt_len).saturating_sub(16 * overlaps[choice] as u64);
        booked.insert(state, Booked { worker: choice, blocks, prefill });
        // Some requests get their first token, and some end, at random.
        let mut ids: Vec<u32> = booked.keys().copied().collect();
        ids.sort_unstable();
        for id in ids {
            let luck = Draw::of(6, u64::from(state) * 4096 + u64::from(id) % 4096);
            if luck.below(0, 4) == 0 && booked[&id].prefill > 0 {
                router.first_token(id, booked[&id].worker, now);
                booked.get_mut(&id).unwrap().prefill = 0;
            } else if luck.below(1, 6) == 0 {
                let gone = booked.remove(&id).unwrap();
                router.ended(id, gone.worker, Ended::default());
            }
        }
    }
}

/// The frequencies of drawn replicas agree with the softmax of the negative costs.
#[test]
fn dynamo_draws_by_temperature() {
    use crate::routers::dynamo_kv::softmax;
    let costs = [3.0, 1.0, 2.0];
    let weights: Vec<f64> = costs.iter().map(|c: &f64| (-(c - 1.0) / (2.0 * 0.5)).exp()).collect();
    let mut counts = [0.0; 3];
    for i in 0..STATES {
        counts[softmax(&costs, 0.5, (i as f64 + 0.5) / STATES as f64)] += 1.0;
    }
    for (count, weight) in counts.iter().zip(&weights) {
        let expected = STATES as f64 * weight / weights.iter().sum::<f64>();
        assert!((count - expected).abs() <= 1.0, "{counts:?}");
    }
    assert_eq!(softmax(&[2.0, 2.0], 0.5, 0.5), 0);
    assert_eq!(softmax(&[2.0, 2.0], 0.5, 0.6), 1);
}
