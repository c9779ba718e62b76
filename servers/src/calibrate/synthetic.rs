//! Recordings of a synthetic server with known costs and acceptance, for tests.

use crate::recordings::recording::{Asked, Ended, Ending, Event, Head, Recording, Server, Tokens};
use foretoken_sim::{Luck, Stream, Time};
use std::path::Path;

/// The true costs and the true acceptance of the synthetic server.
#[derive(Clone, Copy, Debug)]
pub struct Law {
    /// Seconds of the synthetic server's target pass without tokens.
    pub target_s: f64,
    /// Seconds that each token adds to a target pass.
    pub token_s: f64,
    pub draft_s: f64,
    /// Seconds of the host between the synthetic server's steps.
    pub host_s: f64,
    /// Probability that a draft token of the synthetic server is right, independent of all other draft tokens.
    pub rate: f64,
    /// Costs that `calibrate` has no form for.
    pub foreign: Foreign,
}

/// Costs of a synthetic server that `calibrate` has no form for.
#[derive(Clone, Copy, Debug)]
pub struct Foreign {
    /// Seconds of a target pass, times the square of the step's tokens that follow an answer's first token.
    pub square_s: f64,
    /// Further seconds of a step with more than 8 requests.
    pub above_8_s: f64,
    /// Seconds of the host between two steps for each request.
    pub host_request_s: f64,
}

/// The costs and acceptance of the synthetic server that most tests use.
pub const LAW: Law = Law {
    target_s: 9e-3,
    token_s: 2e-4,
    draft_s: 3e-3,
    host_s: 1e-3,
    rate: 0.7,
    foreign: Foreign { square_s: 0.0, above_8_s: 0.0, host_request_s: 0.0 },
};

#[derive(Clone, Copy, Debug)]
pub enum Lengths {
    /// One draft length for all steps of the server.
    Fixed(u32),
    /// Entries (requests, length): after a step of at most `requests` requests, the server drafts `length` tokens per
    /// request. The first such entry is used. If its length is 0, the drafter still runs once, as on vLLM's model
    /// runner V1.
    Table(&'static [(u32, u32)]),
    /// The entries of `Table`, on vLLM's model runner V2: after every step, the draft model makes as many passes as the
    /// longest length in the table.
    TableOnV2(&'static [(u32, u32)]),
}

impl Lengths {
    /// Returns (draft length, number of draft passes) after a step with `requests` requests.
    fn behind(self, requests: u32) -> (u32, u32) {
        let length = |table: &[(u32, u32)]| table.iter().find(|r| requests <= r.0).map_or(0, |r| r.1);
        match self {
            Lengths::Fixed(k) => (k, k),
            Lengths::Table(table) => (length(table), length(table).max(1)),
            Lengths::TableOnV2(table) => (length(table), table.iter().map(|r| r.1).max().unwrap_or(0)),
        }
    }

    fn policy(self) -> String {
        match self {
            Lengths::Fixed(0) => "autoregressive".into(),
            Lengths::Fixed(k) => format!("fixed-{k}"),
            Lengths::Table(_) | Lengths::TableOnV2(_) => "vllm-dynamic".into(),
        }
    }
}

struct Running {
    request: u32,
    left: u32,
    prompt: u32,
    drafted: Vec<u32>,
    accepted: Vec<u32>,
}

impl Law {
    /// The recording of a closed loop of `clients` clients that send `requests` requests in all, with 60 prompt and 40
    /// output tokens each, to the synthetic server with draft length `k`.
    pub fn closed(&self, k: u32, clients: u32, requests: u32, seed: u64) -> Recording {
        self.serve(Lengths::Fixed(k), None, |_| clients, requests, seed)
    }

    /// The recording of `requests` requests, with 60 prompt and 40 output tokens each, on the synthetic server with
    /// draft length `k`. A request is due every `gap_s` seconds. It is sent at the end of the step that runs then.
    pub fn open(&self, k: u32, gap_s: f64, requests: u32, seed: u64) -> Recording {
        self.serve(Lengths::Fixed(k), Some(gap_s), |_| u32::MAX, requests, seed)
    }

    /// The recording of a closed loop on a synthetic server that drafts by a table. The number of clients rises by one
    /// every ten requests, up to 8, and then starts again at 1.
    pub fn rising(&self, lengths: Lengths, requests: u32, seed: u64) -> Recording {
        self.serve(lengths, None, |request| 1 + request / 10 % 8, requests, seed)
    }

    /// Serves `requests` requests. `clients(i)` is the number of clients when request `i` is sent. Arrivals are open if
    /// `gap_s` is given: requests are due every `gap_s` seconds.
    fn serve(
        &self,
        lengths: Lengths,
        gap_s: Option<f64>,
        clients: impl Fn(u32) -> u32,
        requests: u32,
        seed: u64,
    ) -> Recording {
        const START: u64 = 1_700_000_000_000_000;
        let version = match lengths {
            Lengths::Fixed(_) => None,
            Lengths::Table(_) => Some("0.32.0".to_owned()),
            Lengths::TableOnV2(_) => Some("0.33.0".to_owned()),
        };
        let due_s = |request: u32| f64::from(request) * gap_s.unwrap_or(0.0);
        let due = |request: u32| Time::from_s(due_s(request));
        let asked = |request| Asked { due: due(request), prompt_len: 60, output_len: 40, ..Asked::default() };
        let head = Head {
            policy: lengths.policy(),
            seed,
            url: "http://stub/".into(),
            model: "stub".into(),
            server: Server { max_model_len: Some(512), version, ..Server::default() },
            started_unix_us: START,
            clients: gap_s.is_none().then(|| clients(0)),
            token_ids: true,
            categories: vec!["all".into()],
            asked: (0..requests).map(asked).collect(),
            ..Head::default()
        };
        let (mut events, mut now, mut next, mut step) = (Vec::new(), 0.0, 0, 0u64);
        // Number of draft tokens per decoding request that the step before made. The present step verifies them.
        let mut held = 0;
        let mut running: Vec<Running> = Vec::new();
        while next < requests || !running.is_empty() {
            if running.is_empty() && next < requests {
                now = f64::max(now, due_s(next));
            }
            while running.len() < clients(next) as usize && next < requests && due_s(next) <= now {
                events.push(Event::Sent { request: next, at: Time::from_s(now), attempt: 0 });
                running.push(Running { request: next, left: 40, prompt: 60, drafted: vec![], accepted: vec![] });
                next += 1;
            }
            let prompts: Vec<u32> = running.iter().filter(|r| r.prompt > 0).map(|r| r.prompt).collect();
            let decodes = running.len() as u32 - prompts.len() as u32;
            let (context, generation) = (prompts.iter().sum::<u32>(), decodes * (held + 1));
            let (behind, passes) = lengths.behind(running.len() as u32);
            let (tokens, verified) = (f64::from(context + generation), f64::from(generation));
            let above = if running.len() > 8 { self.foreign.above_8_s } else { 0.0 };
            let pass = self.target_s + self.token_s * tokens + self.foreign.square_s * verified * verified + above;
            let elapsed = pass + self.draft_s * f64::from(passes);
            now += elapsed + self.host_s + self.foreign.host_request_s * running.len() as f64;
            step += 1;
            let line = format!(
                "{:.6} INFO x Iteration({step}): {} context requests, {context} context tokens, {decodes} generation requests, \
                 {generation} generation tokens, iteration elapsed time: {:.2} ms, CPU KV cache usage: 0.1%",
                START as f64 / 1e6 + now,
                prompts.len(),
                1e3 * elapsed
            );
            let at = Time::from_s(now);
            events.push(Event::Log { at, lines: vec![line] });
            running.retain_mut(|r| self.advance(r, held, step, seed, at, &mut events));
            held = behind;
        }
        events.push(Event::End { at: Time::from_s(now), ending: Ending::Done });
        Recording { head, events, ending: Some(Ending::Done) }
    }

    fn advance(&self, r: &mut Running, k: u32, step: u64, seed: u64, at: Time, events: &mut Vec<Event>) -> bool {
        let mut emitted = 1;
        if r.prompt > 0 {
            r.prompt = 0;
        } else if k > 0 {
            let luck = Luck::new(seed, Stream::Request, u64::from(r.request));
            let right = |p: u32| luck.unit(step * 64 + u64::from(p)) < self.rate;
            let accepted = (0..k).take_while(|&p| right(p)).count() as u32;
            r.drafted.push(k);
            r.accepted.push(accepted);
            emitted = (accepted + 1).min(r.left);
        }
        r.left -= emitted;
        let request = r.request;
        events.push(Event::Chunk { request, at, tokens: Tokens::Ids(vec![65; emitted as usize]) });
        if r.left == 0 {
            let rounds = serde_json::json!({ "per_step_drafted": r.drafted, "per_step_accepted": r.accepted });
            let metrics =
                (!r.drafted.is_empty()).then(|| serde_json::json!({ "speculative_decoding": rounds }).to_string());
            let (prompt_tokens, completion_tokens) = (Some(60), Some(40));
            let reason = "length".into();
            let how = Ended::Finished { reason, prompt_tokens, completion_tokens, cached_tokens: None, metrics };
            events.push(Event::Ended { request, at, how });
        }
        r.left > 0
    }

    /// Writes the recording of a closed loop on the synthetic server, with 40 requests per client, into `folder`.
    pub fn write(&self, folder: &Path, k: u32, clients: u32, seed: u64) -> std::path::PathBuf {
        let recording = self.closed(k, clients, 40 * clients, seed);
        write_recording(&recording, folder, &format!("k{k}-c{clients}-s{seed}"))
    }
}

pub fn write_recording(recording: &Recording, folder: &Path, name: &str) -> std::path::PathBuf {
    let path = folder.join(format!("{name}.obs"));
    let mut writer = crate::recordings::recording::RecordingWriter::create(&path, &recording.head).unwrap();
    writer.append(&recording.events).unwrap();
    path
}
