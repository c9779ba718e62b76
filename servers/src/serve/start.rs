//! Runs a simulated server: starts its two threads and waits until both have ended.

use crate::serve::clock::Clock;
use crate::serve::http::{HandlerState, answer};
use crate::serve::late::Late;
use crate::serve::metrics::Metrics;
use crate::serve::pace::{Pace, Served};
use crate::serve::settings::Settings;
use crate::serve::step_log::StepLog;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::{EngineConfig, Online, Workload};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use tokenizers::Tokenizer;
use tokio::sync::oneshot;

/// Serves clients until `interrupt` is set, and returns the totals of the run. `config` is the configuration of
/// `engine`. `begun` is called with the server's address once the server listens.
///
/// The n-th request that the engine gets has some properties of the n-th request of the workload `likeness`: category,
/// priority, TPOT limit, recorded acceptance of draft tokens, and output length. The output length stays within the
/// limits that the client gives; if the client sets `ignore_eos`, the output has `max_tokens` tokens. After the last
/// request of `likeness` its first request is used again.
pub fn serve(
    engine: &mut dyn Online,
    config: &EngineConfig,
    likeness: &Workload,
    settings: &Settings,
    interrupt: &AtomicBool,
    begun: impl FnOnce(SocketAddr),
) -> Result<Served> {
    let at = settings.address;
    let bad = |e: std::io::Error| {
        Problem::failed(format!("cannot listen at {at}: {e}")).help("end what listens there, or name another --port")
    };
    let unread = |path: &Path, e| {
        Problem::bad_input(format!("{}: no tokenizer: {e}", path.display())).help("give a model's tokenizer.json")
    };
    let tokenizer = settings.tokenizer.as_deref();
    let tokenizer = tokenizer.map(|path| Tokenizer::from_file(path).map_err(|e| unread(path, e))).transpose()?;
    let listener = TcpListener::bind(at).map_err(bad)?;
    listener.set_nonblocking(true).map_err(bad)?;
    let blocks = engine.load().usable_blocks;
    let log = settings.step_log.as_deref().map(|path| StepLog::create(path, blocks)).transpose()?;
    let address = listener.local_addr().map_err(bad)?;
    let clock = Clock::now();
    let metrics = Metrics::new(&settings.model, config, blocks);
    let (calls, asked) = mpsc::channel();
    let late = Late::new();
    let state = HandlerState::new(settings, tokenizer, config, calls, late.clone());
    let (close, closed) = oneshot::channel();
    std::thread::scope(|scope| {
        let answering = scope.spawn(move || answer(listener, state, closed));
        begun(address);
        let pace = Pace::new(engine, likeness, clock, settings.max_waiting, config.prefix_caching, metrics, log);
        let served = pace.keep(&asked, interrupt);
        // Dropping the sender `asked` lets the HTTP thread close the connections whose answers have not ended.
        drop(asked);
        let _ = close.send(());
        answering.join().expect("the thread does not panic").map_err(bad)?;
        Ok(Served { late_s: late.quantiles_s(), ..served? })
    })
}
