//! Tests of the routers that are our own.

use super::*;

/// `verify-work` takes the replica with the least expected work in flight. The expected work of a request comes from
/// the mean output length and the mean number of tokens per step of the ended requests of its category. If the category
/// has no ended request, all ended requests count.
#[test]
fn verify_work() {
    let settings = VerifyWork::default();
    let mut router = RouterSpec::VerifyWork(settings.clone()).build(&context(3, 7, &[]));
    let mut ended: Vec<(u16, u32, u32)> = Vec::new();
    let mut open: Vec<(u32, usize, u16, f64)> = Vec::new();
    for state in 0..STATES as u32 {
        let draw = Draw::of(8, state.into());
        let prompt = prompt(draw);
        let request = asked(state, Time::ZERO, &prompt);
        let own: Vec<&(u16, u32, u32)> = ended.iter().filter(|e| e.0 == request.category).collect();
        let known: Vec<&(u16, u32, u32)> = if own.is_empty() { ended.iter().collect() } else { own };
        let (tokens, pieces) = known.iter().fold((0.0, 0.0), |(t, p), e| (t + f64::from(e.1), p + f64::from(e.2)));
        let n = known.len() as f64;
        let (output, a_step) = if n > 0.0 { (tokens / n, tokens / pieces) } else { (256.0, 1.0) };
        let work = 0.1 * f64::from(request.prompt_len) + output / a_step * 4.0;
        let choice = router.route(&request, &[Seen::default(); 3]);
        let left = |r: usize| open.iter().filter(|o| o.1 == r).map(|o| o.3).sum::<f64>();
        let loads = [left(0), left(1), left(2)];
        let least = loads.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(loads[choice] <= least + 1e-6, "request {state}: {loads:?}, {choice} was taken");
        open.push((state, choice, request.category, work));
        if draw.below(60, 3) > 0 && !open.is_empty() {
            let (id, replica, category, _) = open.remove(draw.below(61, open.len() as u64) as usize);
            let emitted = 1 + draw.below(62, 200) as u32;
            let pieces = emitted.div_ceil(1 + u32::from(category));
            router.ended(id, replica, Ended { at: Time::ZERO, emitted, pieces });
            ended.push((category, emitted, pieces));
        }
    }
}

#[test]
fn clairvoyant() {
    let true_steps: Vec<u32> = (0..STATES).map(|i| 1 + Draw::of(9, i).below(0, 300) as u32).collect();
    let mut router = RouterSpec::Clairvoyant(Default::default()).build(&context(3, 7, &true_steps));
    let mut left = [0.0f64; 3];
    let mut open: Vec<(u32, usize, f64)> = Vec::new();
    for state in 0..STATES as u32 {
        let draw = Draw::of(8, state.into());
        let prompt = prompt(draw);
        let choice = router.route(&asked(state, Time::ZERO, &prompt), &[Seen::default(); 3]);
        let least = left.iter().copied().fold(f64::INFINITY, f64::min);
        assert!(left[choice] <= least + 1e-6, "request {state}: {left:?}");
        let work = 0.1 * f64::from(prompt.0) + f64::from(true_steps[state as usize]);
        left[choice] += work;
        open.push((state, choice, work));
        if draw.below(60, 3) > 0 {
            let (id, replica, work) = open.remove(draw.below(61, open.len() as u64) as usize);
            left[replica] -= work;
            router.ended(id, replica, Ended::default());
        }
    }
}
