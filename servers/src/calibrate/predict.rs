//! Predicts how a server serves the requests of an observed run. Arrivals, prompts and lengths come from the run, costs
//! and acceptance from a calibration. Nothing else of the run is read, except, with `AcceptanceFrom::Own`, which of its
//! draft tokens were accepted.

use crate::calibrate::source::Source;
use crate::recordings::request::Answer;
use foretoken_policies::{Belief, Fixed, PolicyContext, PolicySpec};
use foretoken_profiler::Calibrated;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::acceptance::{AcceptanceSpec, Beyond, Rates, TableSource};
use foretoken_sim::{ContextReads, Drafting, EngineConfig, Run, Simulation, Speculation, Workload};
use foretoken_traces::truth::TruthTable;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;

/// Where the acceptance of a simulated run comes from.
#[derive(Clone, Copy, Debug)]
pub enum AcceptanceFrom<'a> {
    /// A truth table of other runs: which draft tokens of each recorded answer were right. Each request gets a recorded
    /// answer of its own category.
    Table(&'a TruthTable),
    /// The acceptance that was observed for each request of the predicted run itself. At a position where nothing was
    /// drafted, acceptance is drawn with the rate of the draft position; the list has one rate for each draft
    /// position.
    Own(&'a [f64]),
    /// Acceptance rates by draft position in a step: P(accepted | all earlier draft tokens of the step accepted).
    Rates(&'a [f64]),
    /// Nothing is drafted, so nothing is accepted.
    None,
}

/// The inputs of a prediction of an observed run: costs, acceptance, engine settings, seed.
#[derive(Clone, Copy, Debug)]
pub struct Prediction<'a> {
    pub cost: &'a Calibrated,
    /// Where the simulated run gets its acceptance (which draft tokens are right) from.
    pub acceptance: AcceptanceFrom<'a>,
    pub engine: &'a EngineConfig,
    /// Seed of the random choices, such as which recorded answer's truth a request gets.
    pub seed: u64,
}

impl Prediction<'_> {
    /// Simulates the requests of an observed run with draft length `k`.
    pub fn serve(&self, source: &Source, k: u32) -> Result<Run> {
        let mut workload = source.run.workload.clone();
        let acceptance = match self.acceptance {
            AcceptanceFrom::Table(table) => {
                let path = PathBuf::from("the observed truth");
                let dealt = table.assign(&path, &mut workload, Beyond::Wrap, self.seed);
                dealt.map_err(|e| Problem::bad_input(e.to_string()))?;
                spec(Rates::Table(TableSource { path, beyond: Beyond::Wrap }))
            }
            other => other.source_of(source.run.answers.iter(), &mut workload),
        };
        let acceptance = acceptance.build(self.seed, &workload).map_err(|e| Problem::failed(e.to_string()))?;
        let mut config = self.engine.clone();
        config.max_draft_len = k;
        (config.step_overhead_s, config.host) = (self.cost.step_overhead_s, self.cost.host);
        let (target, draft) = (self.cost.target.cost.build(), self.cost.draft.cost.build());
        let simulation = Simulation {
            workload: &workload,
            arrivals: source.recording.head.arrivals(),
            config: &config,
            draft: &*draft,
            target: &*target,
            context_reads: ContextReads::Once,
            drafting: Drafting::Autoregressive,
            noise_cv: 0.0,
            acceptance: &*acceptance,
            seed: self.seed,
            slo_tpot_s: f64::INFINITY,
            keep_steps: true,
            keep_lives: false,
            interrupt: &AtomicBool::new(false),
        };
        Ok(simulation.run(fixed(k, &config, self.cost, self.seed)))
    }
}

impl AcceptanceFrom<'_> {
    /// The acceptance source, which decides which draft tokens are right, for a simulation of `answers`. `answers`
    /// are in the order of `workload`. `AcceptanceFrom::Own` adds a recording of each answer to `workload`.
    /// `AcceptanceFrom::Table` gives only a placeholder, because `serve` makes this source itself.
    pub(crate) fn source_of<'s>(
        self,
        answers: impl Iterator<Item = &'s Answer>,
        workload: &mut Workload,
    ) -> AcceptanceSpec {
        match self {
            AcceptanceFrom::None | AcceptanceFrom::Table(_) => spec(Rates::Constant { rate: 0.0 }),
            AcceptanceFrom::Rates(rates) => spec(Rates::ByDepth { rates: rates.to_vec() }),
            AcceptanceFrom::Own(hazards) => {
                workload.recordings = answers.map(crate::calibrate::acceptance::own_recording).collect();
                workload.recording = (0..workload.len() as u32).collect();
                spec(Rates::Recorded { hazards: hazards.to_vec() })
            }
        }
    }
}

fn spec(source: Rates) -> AcceptanceSpec {
    AcceptanceSpec { source, ..AcceptanceSpec::default() }
}

/// The policy that drafts `k` tokens for every request in every step; plain decoding for 0.
pub(crate) fn fixed(k: u32, config: &EngineConfig, cost: &Calibrated, seed: u64) -> Speculation {
    if k == 0 {
        return Speculation::Off;
    }
    let belief = Belief {
        draft: cost.draft.belief,
        target: cost.target.belief,
        context_reads: cost.context_reads,
        drafting: Drafting::Autoregressive,
    };
    PolicySpec::Fixed(Fixed { k }).build(&PolicyContext {
        belief,
        profile: &belief,
        max_draft_len: k,
        max_num_seqs: config.max_num_seqs,
        max_num_batched_tokens: config.max_num_batched_tokens,
        seed,
        staleness_steps: 0,
        draft_at: foretoken_sim::DraftAt::StepStart,
        categories: &[],
        told: None,
        truths: None,
        own_rates: None,
    })
}
