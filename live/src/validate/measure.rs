//! Makes the live runs of a validation. A cell is a policy at a load, and runs in pieces. A piece is: a probe of the
//! machine's speed, a live run, a probe, the same run again, a probe. In each round, every cell makes one piece. This
//! file predicts nothing.

use super::piece::{Measuring, Pieces};
use super::piece_requests::no_arrivals;
use super::probe::probed;
use super::runs::{Load, RunEntry, Runs};
use foretoken_profiler::median;
use foretoken_run::plan::Plan;
use foretoken_run::spec::problem::{Problem, Result};
use foretoken_sim::{Arrivals, Workload};

impl Measuring<'_> {
    /// Makes all pieces, in rounds of one piece for each cell. In the first round the closed loops run first, because
    /// they measure the service rates (requests per second that each policy sustains) from which the other loads are
    /// set. Every second round runs the cells in reverse order, so that no cell always runs early. After each piece, a
    /// part of the profile is measured, unless a profile is given.
    pub fn run(self) -> Result<Runs> {
        if self.setting.arrivals() != Arrivals::Open {
            return Err(no_arrivals());
        }
        let own = self.setting.workload.clone();
        let clients = self.spec.clients.unwrap_or(self.setting.engine(true).max_num_seqs);
        let probed = probed(self.machine.setup(), clients, usual_context(&own), usual_prompt(&own));
        let open = self.open_loads();
        let cells = self.policies.len() + open.len();
        let mut runs = Runs::new(probed);
        runs.entries.extend((0..self.policies.len()).map(|policy| RunEntry::new(policy, Load::Closed(clients))));
        let all = cells * self.spec.pieces as usize;
        let rounds = self.spec.pieces;
        let mut pieces = Pieces::new(self, own, runs, all);
        let loops = pieces.runs.entries.len();
        (0..loops).try_for_each(|at| pieces.make(at))?;
        pieces.know_rates()?;
        pieces.runs.entries.extend(open);
        (loops..cells).try_for_each(|at| pieces.make(at))?;
        for round in 1..rounds {
            for n in 0..cells {
                pieces.make(if round % 2 == 1 { cells - 1 - n } else { n })?;
            }
        }
        Ok(pieces.runs)
    }

    /// The cells whose requests arrive at a given rate, not in a closed loop. Each policy runs at each of the shares
    /// `loads` of its own service rate. Unless `common_load` is 0, all policies also run at a common rate, so that they
    /// can be compared.
    fn open_loads(&self) -> Vec<RunEntry> {
        let common = (self.spec.common_load > 0.0).then_some(Load::Common(self.spec.common_load));
        let loads = || self.spec.loads.iter().map(|&share| Load::Own(share)).chain(common);
        let all = (0..self.policies.len()).flat_map(|policy| loads().map(move |load| (policy, load)));
        // The common rate is a share of the baseline's service rate. If this share is also one of the baseline's own
        // loads, the baseline already has this cell and does not get it a second time.
        let repeated = |&(policy, load): &(usize, Load)| match load {
            Load::Common(share) => policy == 0 && self.spec.loads.contains(&share),
            _ => false,
        };
        all.filter(|run| !repeated(run)).map(|(policy, load)| RunEntry::new(policy, load)).collect()
    }
}

/// Median prompt length of the workload's requests, in tokens.
fn usual_prompt(workload: &Workload) -> u32 {
    median(workload.prompt_len.iter().map(|&p| f64::from(p)).collect()) as u32
}

/// The context length (prompt and output so far) in the middle of a request's output, in tokens: the median over the
/// workload's requests, rounded down.
fn usual_context(workload: &Workload) -> u32 {
    let halfway =
        workload.prompt_len.iter().zip(&workload.output_len).map(|(p, o)| f64::from(*p) + f64::from(*o) / 2.0);
    // The workload is not empty, because an empty workload was refused earlier.
    median(halfway.collect()) as u32
}

/// Refuses a plan with several variants or seeds, because a validation has one of each.
pub fn check_one_setting(plan: &Plan) -> Result<()> {
    let (settings, seeds) = (plan.variants.len(), plan.seeds.len());
    if (settings, seeds) == (1, 1) {
        return Ok(());
    }
    let message = format!("{}: {settings} settings and {seeds} seeds, and one is validated at a time", plan.name);
    Err(Problem::bad_input(message).help("choose one: --set 'seeds=[1]', and a single value for what is swept"))
}
