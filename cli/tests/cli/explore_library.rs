//! Computes the numbers of the explorer's page with Foretoken's Rust library, to compare them with the numbers of the
//! page's JavaScript. Also makes random values of the page's controls for this comparison.

use foretoken_policies::expected_tokens;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_profiler::hardware::gpus::gpus;
use foretoken_profiler::hardware::models::catalog;
use foretoken_run::host_band;
use foretoken_sim::{
    BatchView, Categories, ChunkTotals, Coefficients, ContextReads, Drafting, HostLaw, LatencyModel, PassShape, Time,
    shape,
};
use itertools::Itertools;
use serde_json::{Value, json};

/// The longest draft length that the explorer's page considers, tokens.
pub const LONGEST: u32 = 16;
/// The largest batch size that the explorer's page considers, requests.
pub const MOST: u32 = 1024;

/// How many draft tokens are accepted, stated in one of two ways: as acceptance rates, or as mean tokens per step. From
/// this the explorer computes the tokens that a step gives a request, for each draft length.
#[derive(Clone, Debug)]
pub enum Accepted {
    /// Acceptance rates by the draft token's position in the draft of its step. The last rate holds for all later
    /// positions.
    Rates(Vec<f64>),
    /// Numbers for each draft length that the policy asks for: `tokens` is the mean number of tokens that a step gives
    /// a request. `shares` are the shares of requests that get a first, second, … draft token in a step; `None` if each
    /// request always gets all draft tokens that the policy asks for.
    Drawn { tokens: Vec<f64>, shares: Option<Vec<Vec<f64>>> },
}

impl Accepted {
    fn tokens(&self, length: u32) -> f64 {
        match self {
            Accepted::Rates(rates) if rates.len() == 1 => expected_tokens(rates[0], length),
            Accepted::Rates(rates) => {
                let rate = |place: u32| rates[(place as usize).min(rates.len() - 1)];
                (1..=length).map(|places| (0..places).map(rate).product::<f64>()).sum::<f64>() + 1.0
            }
            Accepted::Drawn { tokens, .. } => tokens[length as usize],
        }
    }

    /// The number of draft tokens of each of `batch` requests if the policy asks for `length`.
    fn lengths(&self, batch: u32, length: u32) -> Vec<u32> {
        let Accepted::Drawn { shares: Some(shares), .. } = self else { return vec![length; batch as usize] };
        let counts: Vec<f64> = shares[length as usize].iter().map(|s| (s * f64::from(batch)).round()).collect();
        (0..batch).map(|i| counts.iter().filter(|&&n| n > f64::from(i)).count() as u32).collect()
    }
}

/// One setting of all controls of the page, as a URL hash, and the same settings for Foretoken's Rust library.
pub struct Point {
    pub hash: String,
    pub target: LatencySpec,
    pub draft: LatencySpec,
    pub draft_cost: f64,
    pub accepted: Accepted,
    pub length: u32,
    pub batch: u32,
    pub context: u32,
    pub overhead_s: f64,
    pub host: HostLaw,
    pub reads: ContextReads,
    pub drafting: Drafting,
}

/// A source of random numbers in [0, 1) that gives the same numbers in every run (SplitMix64).
pub struct Draws(pub u64);

impl Draws {
    pub fn unit(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.unit() * n as f64) as usize
    }

    /// A random number between `least` and `most`, uniform in its logarithm.
    pub fn log(&mut self, least: f64, most: f64) -> f64 {
        least * (most / least).powf(self.unit())
    }
}

pub fn spec(value: Value) -> LatencySpec {
    serde_json::from_value(value).unwrap()
}

/// A random state of the page. In half of the states the costs are rooflines of random presets, in the other half they
/// are linear with random coefficients. `drawn` are the page's acceptance sources other than rates.
pub fn any_point(draws: &mut Draws, drawn: &[(String, Accepted)]) -> Point {
    let (target, draft, machine) = if draws.unit() < 0.5 {
        let gpu = &gpus()[draws.below(gpus().len())].name;
        let mut model = || &catalog()[draws.below(catalog().len())].name;
        let (target, draft) = (model(), model());
        let n = [1, 2, 4, 8][draws.below(4)];
        // As the explorer's page does: if the GPU cannot compute in the precision of the weights, it multiplies in
        // bf16.
        let roofline = |model: &str, n: u32| {
            let with_weights = |weight_only: bool| {
                let settings = json!({ "gpu": gpu, "model": model, "tensor_parallel": n, "weight_only": weight_only });
                spec(json!({ "roofline": settings }))
            };
            if with_weights(false).check().is_ok() { with_weights(false) } else { with_weights(true) }
        };
        (roofline(target, n), roofline(draft, 1), format!("hw={gpu}&target={target}&draft={draft}&tp={n}"))
    } else {
        let c: Vec<f64> = [(1.0, 300.0), (1.0, 200.0), (0.5, 50.0), (0.01, 30.0), (0.1, 50.0), (0.05, 10.0)]
            .iter()
            .map(|&(least, most)| draws.log(least, most))
            .collect();
        let linear = |c: &[f64]| {
            spec(json!({ "linear": { "alpha_s": c[0] / 1e9, "gamma_s": c[1] / 1e6, "delta_s": c[2] / 1e3 } }))
        };
        let names = ["ta", "tg", "td", "da", "dg", "dd"];
        let said: Vec<String> = names.iter().zip_eq(&c).map(|(name, x)| format!("{name}={x}")).collect();
        (linear(&c[..3]), linear(&c[3..]), format!("hw=linear&{}", said.join("&")))
    };
    any_load(draws, target, draft, &machine, drawn)
}

/// A random state of the page (values of its controls) with the given hardware costs, and with a random acceptance
/// source, draft length, batch size, context and host time. `machine` is the part of the URL hash that describes the
/// hardware.
pub fn any_load(
    draws: &mut Draws,
    target: LatencySpec,
    draft: LatencySpec,
    machine: &str,
    drawn: &[(String, Accepted)],
) -> Point {
    let (source, accepted) = any_source(draws, drawn);
    let measured = draws.unit() < 0.3;
    let mut point = Point {
        hash: String::new(),
        target,
        draft,
        draft_cost: if draws.unit() < 0.3 { 1.0 } else { draws.log(0.05, 20.0) },
        accepted,
        length: draws.below(LONGEST as usize + 1) as u32,
        batch: draws.log(1.0, f64::from(MOST)) as u32,
        context: draws.log(16.0, 131_072.0) as u32,
        overhead_s: 0.0,
        host: if measured { host_band::measured() } else { HostLaw::default() },
        reads: [ContextReads::Once, ContextReads::PerPosition][draws.below(2)],
        drafting: [Drafting::Autoregressive, Drafting::Parallel][draws.below(2)],
    };
    // Some of the page's acceptance sources look draft tokens up in earlier text. For them no draft model runs.
    if matches!(point.accepted, Accepted::Drawn { shares: Some(_), .. }) {
        (point.draft, point.drafting) = (LatencySpec::Linear(Coefficients::FREE), Drafting::Parallel);
    }
    let over_ms = if draws.unit() < 0.3 { 0.0 } else { draws.unit() * 3.0 };
    let host = if measured { "measured" } else { "constant" };
    point.overhead_s = over_ms / 1e3;
    let word = |value: Value| value.as_str().unwrap().to_owned();
    point.hash = format!(
        "{machine}&{source}&cost={}&k={}&n={}&c={}&over={over_ms}&host={host}&reads={}&drafting={}",
        point.draft_cost,
        point.length,
        point.batch,
        point.context,
        word(json!(point.reads)),
        word(json!(point.drafting)),
    );
    point
}

/// A random acceptance source (what decides which draft tokens are right): a constant rate, rates by draft position, or
/// an entry of `drawn`. Returns (its part of the URL hash, the same source for Foretoken's Rust library).
fn any_source(draws: &mut Draws, drawn: &[(String, Accepted)]) -> (String, Accepted) {
    match draws.below(3) {
        0 => {
            let rates: Vec<f64> = (0..=draws.below(5)).map(|_| draws.unit()).collect();
            (format!("acc=by-depth&rates={}", rates.iter().join(",")), Accepted::Rates(rates))
        }
        1 if !drawn.is_empty() => {
            let (name, accepted) = &drawn[draws.below(drawn.len())];
            (format!("acc={}", escaped(name)), accepted.clone())
        }
        _ => {
            let rate = draws.unit();
            (format!("acc=constant&a={rate}"), Accepted::Rates(vec![rate]))
        }
    }
}

/// Percent-encodes text for a URL.
pub fn escaped(text: &str) -> String {
    let plain = |b: u8| b.is_ascii_alphanumeric() || b"-_.".contains(&b);
    text.bytes().map(|b| if plain(b) { (b as char).to_string() } else { format!("%{b:02X}") }).collect()
}

/// Computes the numbers that the explorer's page shows for one setting of its controls, with Foretoken's Rust library.
pub struct Library<'a> {
    point: &'a Point,
    target: Box<dyn LatencyModel>,
    draft: Box<dyn LatencyModel>,
}

impl Library<'_> {
    pub fn of(point: &Point) -> Library<'_> {
        Library { point, target: point.target.build(), draft: point.draft.build() }
    }

    fn draft_pass(&self, shape: PassShape) -> Time {
        let pass = self.draft.pass(shape);
        if self.point.draft_cost == 1.0 { pass } else { Time::from_s(pass.as_s() * self.point.draft_cost) }
    }

    /// The time of all draft passes of a step and the time of its verify pass, computed as in the simulator. Request i
    /// drafts `lengths[i]` tokens.
    fn passes(&self, lengths: &[u32]) -> (Time, Time) {
        let n = lengths.len();
        let (contexts, zeros) = (vec![self.point.context; n], vec![0; n]);
        let view = BatchView {
            now: Time::ZERO,
            step: 0,
            ids: &zeros,
            context: &contexts,
            emitted: &zeros,
            limit: lengths,
            draft_gap: &zeros,
            slo_tpot_s: &vec![f64::INFINITY; n],
            categories: Categories::default(),
            context_sum: u64::from(self.point.context) * n as u64,
            prefill: ChunkTotals::default(),
            draft_prefill: ChunkTotals::default(),
            always_extend: false,
            num_running: n as u32,
            num_waiting: 0,
        };
        let longest = lengths.iter().copied().max().unwrap_or(0);
        let draft = match self.point.drafting {
            _ if longest == 0 => Time::ZERO,
            Drafting::Parallel => self.draft_pass(shape::draft_block(&view, lengths)),
            Drafting::Autoregressive => {
                (1..=longest).map(|pass| self.draft_pass(shape::draft_pass(&view, lengths, pass))).sum()
            }
        };
        (draft, self.target.pass(shape::verify_pass(&view, lengths, self.point.reads)))
    }

    fn host(&self, law: &HostLaw, lengths: &[u32]) -> Time {
        let requests = lengths.len() as u32;
        let law = Time::from_s(law.decode_step_s(requests, requests + lengths.iter().sum::<u32>()));
        law + Time::from_s(self.point.overhead_s)
    }

    fn step_of(&self, law: &HostLaw, lengths: &[u32]) -> f64 {
        let (draft, verify) = self.passes(lengths);
        (draft + verify + self.host(law, lengths)).as_s()
    }

    pub fn step_s(&self, batch: u32, length: u32) -> f64 {
        self.step_of(&self.point.host, &self.point.accepted.lengths(batch, length))
    }

    /// The speedup of drafting `length` tokens at batch size `batch` over plain decoding.
    fn speedup_of(&self, law: &HostLaw, accepted: &Accepted, batch: u32, length: u32) -> f64 {
        let plain = self.step_of(law, &vec![0; batch as usize]);
        accepted.tokens(length) * plain / self.step_of(law, &accepted.lengths(batch, length))
    }

    pub fn speedup(&self, batch: u32, length: u32) -> f64 {
        self.speedup_of(&self.point.host, &self.point.accepted, batch, length)
    }

    /// The speedup of the state's draft length and batch size over plain decoding, if every draft token has the
    /// acceptance rate `rate`.
    fn speedup_at(&self, rate: f64) -> f64 {
        let constant = Accepted::Rates(vec![rate]);
        self.speedup_of(&self.point.host, &constant, self.point.batch, self.point.length)
    }

    /// The intervals (first, last) of batch sizes at which drafting `point.length` tokens is faster than plain
    /// decoding.
    fn pays(&self) -> Vec<(u32, u32)> {
        let mut intervals: Vec<(u32, u32)> = Vec::new();
        for batch in (1..=MOST).filter(|&batch| self.speedup(batch, self.point.length) > 1.0) {
            match intervals.last_mut() {
                Some((_, last)) if *last == batch - 1 => *last = batch,
                _ => intervals.push((batch, batch)),
            }
        }
        intervals
    }

    /// (bytes of GPU memory left for KV beside the weights, bytes of KV per token, of these the bytes in layers with a
    /// sliding window). If the draft length is above 0, the draft model's weights and KV are included. `None` if the
    /// memory is not known.
    fn memory(&self) -> Option<(f64, f64, f64)> {
        let memory = self.point.target.memory()?;
        let all = memory.without_windows().kv_bytes_token;
        let of_windows = all - memory.kv_bytes_token;
        let LatencySpec::Roofline(draft) = &self.point.draft else {
            return Some((memory.kv_bytes, all, of_windows));
        };
        if self.point.length == 0 {
            return Some((memory.kv_bytes, all, of_windows));
        }
        let weights = draft.shape().unwrap().work().weight_bytes;
        let of_draft = draft.memory().unwrap().without_windows().kv_bytes_token;
        Some((memory.kv_bytes - weights, all + of_draft, of_windows))
    }
}

pub fn close(name: &str, page: &Value, library: f64, point: &Point) {
    let page = page.as_f64().unwrap_or_else(|| panic!("{name} is {page} at {}", point.hash));
    let off = (page - library).abs() / library.abs().max(1e-300);
    assert!(page == library || off <= 1e-9, "{name}: the page has {page}, the library {library} at {}", point.hash);
}

/// Compares every number of the page with the number that Foretoken's Rust library computes. Returns the largest
/// relative deviation of a step time or a speedup.
pub fn compare(page: &Value, point: &Point) -> f64 {
    let library = Library::of(point);
    let (n, k) = (point.batch, point.length);
    let lengths = point.accepted.lengths(n, k);
    let (draft, verify) = library.passes(&lengths);
    let tokens = point.accepted.tokens(k);
    close("expected_tokens", &page["expected_tokens"], tokens, point);
    close("draft_s", &page["draft_s"], draft.as_s(), point);
    close("verify_s", &page["verify_s"], verify.as_s(), point);
    close("host_s", &page["host_s"], library.host(&point.host, &lengths).as_s(), point);
    close("step_s", &page["step_s"], library.step_s(n, k), point);
    close("plain_step_s", &page["plain_step_s"], library.step_s(n, 0), point);
    close("token_goodput_tok_s", &page["token_goodput_tok_s"], f64::from(n) * tokens / library.step_s(n, k), point);
    close("speedup", &page["speedup"], library.speedup(n, k), point);
    let best = (1..=LONGEST).map(|k| library.speedup(n, k)).fold(1.0, f64::max);
    let best_length = page["best_length"].as_u64().unwrap() as u32;
    close("best_speedup", &page["best_speedup"], library.speedup(n, best_length), point);
    // The page takes the shortest length whose steps give at most 1 % fewer tokens than the best one. The last digits
    // of the page's numbers may differ from the library's.
    let ties = |k: u32| library.speedup(n, k) * 1.01 / best;
    assert!(ties(best_length) >= 1.0 - 1e-9, "{}: {best_length} is not the best", point.hash);
    assert!((0..best_length).all(|k| ties(k) < 1.0 + 1e-9), "{}: a shorter length ties", point.hash);
    let longest = (1..=LONGEST).rev().find(|&k| library.speedup(n, k) > 1.0).unwrap_or(0);
    assert_eq!(page["break_even_length"], json!(longest), "{}", point.hash);
    if k > 0 {
        assert_eq!(page["pays"], json!(library.pays()), "{}", point.hash);
        match page["break_even_acceptance"].as_f64() {
            None => assert!(library.speedup_at(1.0) < 1.0, "{}", point.hash),
            Some(0.0) => assert!(library.speedup_at(0.0) >= 1.0, "{}", point.hash),
            Some(needed) => close("speedup at break-even", &json!(library.speedup_at(needed)), 1.0, point),
        }
    }
    match library.memory() {
        None => assert!(page["kv"].is_null()),
        Some((bytes, of_token, of_windows)) => {
            close("kv_bytes", &page["kv"]["kv_bytes"], bytes, point);
            close("kv_bytes_token", &page["kv"]["kv_bytes_token"], of_token, point);
            close("window_bytes_token", &page["kv"]["window_bytes_token"], of_windows, point);
        }
    }
    // For a roofline without host time, the page shows a range of speedups. One end is the speedup without host time,
    // the other end is the speedup with the host time of a measured server.
    let left_out = matches!(point.target, LatencySpec::Roofline(_)) && point.host.is_zero() && point.overhead_s == 0.0;
    assert_eq!(page["banded"].is_null(), !left_out, "{}", point.hash);
    if left_out {
        let banded = library.speedup_of(&host_band::measured(), &point.accepted, n, k);
        close("speedup with host time", &page["banded"]["speedup"], banded, point);
    }
    let off = |key: &str, library: f64| (page[key].as_f64().unwrap() / library - 1.0).abs();
    off("step_s", library.step_s(n, k)).max(off("speedup", library.speedup(n, k)))
}
