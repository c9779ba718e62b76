//! Runs a validation on a machine whose probes have prescribed times. Checks the order of the runs, and which pieces
//! the comparison uses and which it leaves out.

use super::*;
use crate::profiling::{Asked, Limits};
use crate::serve::tape::read_tape;
use crate::serve::{Failed, Machine, Models, check, open_timed, prompts};
use crate::validate::{Compared, Tapes};
use foretoken_kernels::executor::CannotServe;
use foretoken_profiler::{Density, Passes, Role, Setup, Shape};
use foretoken_run::cells::{Manifest, Mode};
use foretoken_run::plan::Plan;
use foretoken_servers::compare::live_runs::{Standing, Validation, page, render};
use std::time::Duration;

const EXPERIMENT: &str = r#"name = "pieces"
policies = [{ autoregressive = {} }, { fixed = { k = 2 } }]

[hardware]
target = { linear = { alpha_s = 20e-9, gamma_s = 150e-6, delta_s = 300e-6 } }
draft = { linear = { alpha_s = 5e-9, gamma_s = 15e-6, delta_s = 40e-6 } }

[engine]
max_num_seqs = 2
max_num_batched_tokens = 64
num_gpu_blocks = 64
max_model_len = 128
prefix_caching = false

[workload]
arrivals = { poisson = { rate = 1.0 } }
lengths = { fixed = { prompt = 16, output = 8 } }
requests = 400

[acceptance.source]
mixture = {}

[live]
target = "tiny-target"
draft = "tiny-draft"
threads = 1
warm_up_requests = 2

[validate]
loads = [0.5]
common_load = 0.0
pieces = 3
service_s = 0.05
run_s = 0.05
profile_s = 0.5
"#;

/// A machine that serves on the CPU. A timed pass takes 1 ms times a prescribed factor. The factor is equal for all
/// passes of one call of `Timed::time`. Each call is one probe, because no profile is measured.
struct Prescribed {
    inner: Box<dyn Timed>,
    /// The factors on the time of 1 ms that passes take, one for each call of `Timed::time`, in order. Later calls have
    /// the factor 1.
    factors: Vec<f64>,
    asked: usize,
}

impl Machine for Prescribed {
    fn name(&self) -> &str {
        self.inner.name()
    }

    fn serve(&mut self, job: crate::serve::Job) -> std::result::Result<crate::serve::Served, CannotServe> {
        self.inner.serve(job)
    }

    fn warm_up(&mut self) -> std::result::Result<(), String> {
        self.inner.warm_up()
    }
}

impl Timed for Prescribed {
    fn setup(&self) -> &Setup {
        self.inner.setup()
    }

    fn time(&mut self, work: &mut crate::serve::Work) {
        let factor = self.factors.get(self.asked).copied().unwrap_or(1.0);
        self.asked += 1;
        work(&mut Constant(factor));
    }
}

struct Constant(f64);

impl Passes for Constant {
    type Error = Failed;

    fn time(&mut self, _: Role, _: &Shape) -> std::result::Result<Duration, Failed> {
        Ok(Duration::from_secs_f64(self.0 * 1e-3))
    }
}

/// Runs the experiment on a machine whose probes are longer by the factors `factors`, without a profile, and compares
/// the runs with simulations. Returns the list of runs, the validation and its HTML page.
fn validated(factors: &[f64]) -> (Runs, Validation, String) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("x.toml");
    std::fs::write(&file, EXPERIMENT).unwrap();
    let mut plan = Plan::load(&file, &[]).unwrap();
    plan.baseline_first();
    let variant = &plan.variants[0];
    let live = variant.experiment.live.clone().unwrap();
    let spec = variant.experiment.validate.clone().unwrap();
    let models = Models::find(&live).unwrap();
    let mut setting = Setting::new(variant, 1).unwrap();
    let room = check(&plan, variant, &setting, &live, &models).unwrap();
    let asked = Asked { limits: Limits::default(), density: Density::Quick, budget_s: 0.5, seed: 1 };
    let inner = open_timed(&live, &models, room, &asked).unwrap();
    let mut machine = Prescribed { inner, factors: factors.to_vec(), asked: 0 };
    let prompts = prompts(&live.prompts, &mut setting.workload, 1, &models).unwrap();
    let (folder, _) = Folder::open(dir.path().join("out"), &plan, Mode::Fresh).unwrap();
    std::fs::create_dir(folder.path().join(TAPES)).unwrap();
    let policies: Vec<PolicySpec> = plan.policies.iter().map(|p| p.spec.clone()).collect();
    let interrupt = AtomicBool::new(false);
    let measuring = Measuring {
        machine: &mut machine,
        live: &live,
        spec: &spec,
        policies: &policies,
        setting,
        prompts,
        slices: None,
        folder: &folder,
        interrupt: &interrupt,
    };
    let runs = measuring.run().unwrap();
    assert_eq!(Runs::of(folder.path()).unwrap(), runs, "the list is as it was left");
    for name in runs.entries.iter().flat_map(RunEntry::tapes) {
        assert!(read_tape(&folder.path().join(TAPES).join(name)).unwrap().complete(), "{name}");
    }
    let mut manifest = Manifest::read(folder.path()).unwrap();
    manifest.complete = true;
    let tapes = Tapes { folder: folder.path(), manifest: &manifest, intact: false };
    let compared =
        Compared { plan: &plan, tapes, runs: &runs, profile: None, costs: "of the test".into(), caveats: vec![] };
    let (validation, drawn) = compared.validation().unwrap();
    let page = page(&validation, drawn).html();
    (runs, validation, page)
}

/// Number of cells in this experiment. The constant `ROUND` is the number of probes in one round, in which each cell
/// makes one piece.
const CELLS: usize = 4;
const ROUND: usize = 3 * CELLS;

#[test]
fn cells_take_turns_and_a_piece_is_two_runs_of_the_same_requests() {
    let (runs, validation, _) = validated(&[]);
    assert_eq!(runs.entries.len(), CELLS);
    for entry in &runs.entries {
        assert_eq!(entry.pieces.len(), 3);
        assert!(entry.pieces.iter().all(|p| p.tapes.len() == 2 && p.probes.len() == 3));
        // Later pieces of a cell serve later requests of the workload.
        assert!(entry.pieces.windows(2).all(|pair| pair[0].first < pair[1].first), "{entry:?}");
    }
    assert_eq!((validation.counted, validation.undecided.len()), ((12, 12), 0));
    assert!(validation.steady() && validation.decided() && validation.caveats.is_empty());
    for cell in &validation.cells {
        let per_piece = |row: &str| cell.row(row).map(|r| r.observed.len());
        assert_eq!(per_piece("TPOT, mean"), Some(2), "live, and live again");
        // The comparison of tokens covers the requests of all pieces, not only those in the first piece.
        assert_eq!((cell.replay_parted.as_deref(), cell.flow.other_acceptance), (None, 0));
        assert_eq!(cell.flow.requests, cell.requests);
    }
    let text = render(&validation);
    let place = |part: &str| text.find(part).unwrap_or_else(|| panic!("{part} is missing in {text}"));
    // The report first states the rule by which pieces are used or left out. It says how many pieces are used before it
    // gives numbers, such as the mean TPOT.
    let (rule, repeats, number) =
        (place("rule, stated before the runs: a piece counts when"), place("live against live: "), place("TPOT, mean"));
    assert!(rule < repeats && repeats < number && place("12 of 12 count") < number);
    place("of 2 cells at 0.5");
}

/// The machine changes its speed during the second piece of the second closed loop. The comparison leaves out this
/// piece. It uses the other pieces of this policy at this load.
#[test]
fn a_piece_in_which_the_machine_changed_is_left_out() {
    let steady = vec![1.0; ROUND];
    // The second round runs the cells in reverse order, so the second of the four cells runs as the third.
    let second = ROUND + 2 * 3;
    let mut factors = [steady.clone(), steady.clone(), steady].concat();
    factors[second + 1] = 1.06;
    let (runs, validation, page) = validated(&factors);
    assert_eq!((validation.counted, validation.undecided.len()), ((11, 12), 0));
    let (all, changed) = (&runs.entries[1], &validation.cells[1]);
    let standing: Vec<Standing> = changed.pieces.iter().map(|p| p.standing).collect();
    assert_eq!(standing, [Standing::Counts, Standing::Changed, Standing::Counts], "{runs:?}");
    assert!((changed.pieces[1].spread.unwrap() - 0.06).abs() < 1e-9);
    assert!(changed.requests < all.pieces.len() as u64 * 1000 && !validation.steady());
    let text = render(&validation);
    assert!(text.contains("2 of 3 pieces count; left out: number 2, whose probes are 6.0 % apart"), "{text}");
    assert!(page.contains("11 of 12 count") && page.contains("whose probes are 6.0 % apart"));
    assert!(validation.decided() && validation.caveats.is_empty(), "every cell has pieces that count");
}

/// In the second round the machine is slower, but its speed does not change within a piece. Such a change from piece to
/// piece is allowed: the comparison uses all pieces.
#[test]
fn a_speed_that_is_kept_through_a_piece_is_drift() {
    let (_, validation, _) = validated(&[vec![1.0; ROUND], vec![1.2; ROUND], vec![1.0; ROUND]].concat());
    assert_eq!(validation.counted, (12, 12));
    let drift = validation.drift.unwrap();
    assert!(drift.smallest.abs() < 1e-9 && (drift.largest - 0.2).abs() < 1e-9, "{drift:?}");
}

#[test]
fn a_cell_without_a_steady_piece_is_not_decided_and_the_others_are() {
    let round = |factors: [f64; CELLS]| factors.iter().flat_map(|&f| [1.0, f, 1.0]).collect::<Vec<f64>>();
    let (forth, back) = (round([1.0, 1.0, 1.0, 1.3]), round([1.3, 1.0, 1.0, 1.0]));
    let (_, validation, page) = validated(&[forth.clone(), back, forth].concat());
    assert_eq!((validation.counted, validation.cells.len(), validation.undecided.len()), ((9, 12), 3, 1));
    let undecided = &validation.undecided[0];
    assert_eq!(undecided.why(), "not decided: the machine changed its speed in all 3 pieces");
    let name = format!("{}, {}", undecided.policy, undecided.load);
    assert_eq!(name, "fixed-2, 0.5 of its service rate");
    assert!(validation.checks.iter().all(|c| !c.what.starts_with(&name)), "{:?}", validation.checks);
    assert!(validation.caveats[0].starts_with("NOT DECIDED: 1 of 4 cells"), "{:?}", validation.caveats);
    let repeats = validation.repeats[0];
    assert_eq!((repeats.share, repeats.cells, repeats.undecided), (0.5, 2, 1));
    let text = render(&validation);
    assert!(text.contains(&format!("{name}: not decided")) && text.contains("(1 not decided)"), "{text}");
    assert!(page.contains("NOT DECIDED") && page.contains(&name));
}

#[test]
fn without_a_steady_piece_nothing_is_decided() {
    let busy: Vec<f64> = (0..3 * ROUND).map(|n| if n % 2 == 0 { 1.0 } else { 1.5 }).collect();
    let (_, validation, page) = validated(&busy);
    assert_eq!((validation.counted, validation.cells.len(), validation.undecided.len()), ((0, 12), 0, 4));
    assert!(!validation.decided() && validation.checks.is_empty());
    let text = render(&validation);
    assert!(text.contains("nothing is decided, since in no piece the machine was steady"), "{text}");
    assert!(page.contains("Nothing is decided: in no piece the machine was steady."));
}
