//! Mean latency below saturation. By Little's law it is L = C1 / (1 − λ C2) at λ requests a second (docs/model.md 12.1;
//! the form of arXiv 2605.15051). C1 and C2 are not fitted. They are computed from the costs of a step, the lengths of
//! requests and the acceptance of draft tokens.

use crate::setup::{NeverRight, Setup, poisson};
use foretoken_policies::{Fixed, PolicySpec};
use foretoken_sim::acceptance::RankLaw;
use foretoken_sim::host::SpeculatingSeconds;
use foretoken_sim::*;

/// An acceptance source in which every draft token is right.
struct AlwaysRight;

impl AcceptanceSource for AlwaysRight {
    fn start(&self, request: RequestTruth, max_draft_len: u32, out: &mut TruthRow) {
        let positions = (request.output_len + max_draft_len) as usize;
        out.reset(positions, 1);
        (0..positions).for_each(|n| out.set(0, n));
    }

    fn confidence(&self, r: RequestTruth, start: u32, depth: u32, right: Option<bool>, n: u64) -> f32 {
        NeverRight.confidence(r, start, depth, right, n)
    }

    fn rank_if_wrong(&self, r: RequestTruth, position: u32) -> u32 {
        NeverRight.rank_if_wrong(r, position)
    }

    fn ranks(&self) -> &RankLaw {
        NeverRight.ranks()
    }
}

const PROMPT: u32 = 200;
const REQUESTS: u64 = 12_000;

/// A case to test: draft tokens of a request in a step (`k`), tokens that a decode step gives a request (`gives`),
/// output tokens of a request (`output`), and the host's costs.
#[derive(Clone, Copy)]
struct Case {
    k: u32,
    gives: u32,
    output: u32,
    host: HostLaw,
}

impl Case {
    /// Number of decode steps that a request needs after its first token.
    fn rounds(self) -> f64 {
        f64::from((self.output - 1).div_ceil(self.gives))
    }

    /// (C1, C2) of the law L = C1 / (1 − λ C2), in seconds. The latency L of a request has two parts. The first part is
    /// the fixed time of its steps. The second part is work, time that depends on requests and tokens: the request's
    /// own work, and the work of the λ L requests that arrive meanwhile.
    fn law(self, setup: &Setup) -> (f64, f64) {
        let (n, k) = (self.rounds(), f64::from(self.k));
        let (target, draft, host) = (setup.target, setup.draft, self.host);
        // `fixed` is the part of a step's time that does not depend on the batch. `work` is the time that one request
        // adds to its steps, summed over these steps.
        let more = if self.k > 0 { host.speculating } else { SpeculatingSeconds::default() };
        let fixed = target.delta_s + k * draft.delta_s + more.step_s;
        let context = f64::from(PROMPT) + f64::from(self.output - 1 - self.gives) / 2.0;
        let round = target.gamma_s * (1.0 + k)
            + target.alpha_s * context
            + k * (draft.gamma_s + draft.alpha_s * (context + (k - 1.0) / 2.0))
            + host.request_s
            + more.request_s;
        let prompt = target.gamma_s * f64::from(PROMPT) + host.request_s;
        let work = prompt + n * round;
        // Number of steps in a request's latency: its n decode steps, the step of its prompt, and on average half of
        // the step that is running when the request arrives.
        let steps = n + 1.5;
        (steps * fixed + work, work)
    }

    fn setup(self, workload: &Workload) -> Setup<'_> {
        let mut setup = Setup::new(workload);
        setup.acceptance = if self.gives > 1 { &AlwaysRight } else { &NeverRight };
        setup.draft = Coefficients { alpha_s: 0.02e-6, gamma_s: 4e-6, delta_s: 0.6e-3 };
        setup.config.max_num_seqs = 4096;
        setup.config.max_num_batched_tokens = 1 << 20;
        setup.config.num_gpu_blocks = 1 << 18;
        setup.config.host = self.host;
        setup
    }

    /// Mean end-to-end latency in seconds of the last four fifths of the requests, at `rate` requests per second.
    fn simulated(self, rate: f64, requests: u64) -> f64 {
        let workload = poisson(requests, rate, PROMPT, self.output, 11);
        let setup = self.setup(&workload);
        let speculation = match self.k {
            0 => Speculation::Off,
            k => PolicySpec::Fixed(Fixed { k }).build(&setup.context(&setup.belief(), 1)),
        };
        let run = setup.run(speculation);
        let late = (requests as usize / 5)..requests as usize;
        let count = late.len() as f64;
        late.map(|i| run.records.e2e_s(i)).sum::<f64>() / count
    }
}

fn cases() -> [(&'static str, Case); 4] {
    let none = HostLaw::default();
    let host = HostLaw {
        request_s: 20e-6,
        speculating: SpeculatingSeconds { step_s: 2e-3, request_s: 80e-6, token_s: 0.0 },
        ..HostLaw::default()
    };
    [
        ("plain", Case { k: 0, gives: 1, output: 129, host: none }),
        ("3 drafts, none right", Case { k: 3, gives: 1, output: 129, host: none }),
        ("3 drafts, all right", Case { k: 3, gives: 4, output: 401, host: none }),
        ("3 drafts, all right, with host time", Case { k: 3, gives: 4, output: 401, host }),
    ]
}

#[test]
fn latency_below_saturation_is_littles_law() {
    for (name, case) in cases() {
        let empty = Workload::default();
        let (c1, c2) = case.law(&case.setup(&empty));
        for load in [0.1, 0.3, 0.5, 0.7] {
            let rate = load / c2;
            let (found, law) = (case.simulated(rate, REQUESTS), c1 / (1.0 - rate * c2));
            let error = found / law - 1.0;
            println!("{name}, λ C2 = {load}: simulated {found:.4} s, law {law:.4} s, {:+.2} %", 100.0 * error);
            assert!(error.abs() < 0.04, "{name} at λ C2 = {load}: {found} s, and the law says {law} s");
        }
    }
}

/// Of the law L = C1 / (1 − λ C2): the server saturates at the rate λ = 1 / C2. At a higher rate, the latency grows
/// with the length of the run.
#[test]
fn the_law_knows_where_it_ends() {
    for (name, case) in cases() {
        let empty = Workload::default();
        let (_, c2) = case.law(&case.setup(&empty));
        let growth = |load: f64| case.simulated(load / c2, 6000) / case.simulated(load / c2, 3000);
        let (below, beyond) = (growth(0.8), growth(1.25));
        println!("{name}: twice the requests take {below:.2} times as long below saturation, {beyond:.2} beyond");
        assert!(below < 1.3 && beyond > 1.6, "{name}: {below}, {beyond}");
    }
}
