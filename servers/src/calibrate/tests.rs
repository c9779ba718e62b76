//! Calibrates a synthetic server with known costs, and predicts draft lengths that were not observed.

use crate::calibrate::calibration::Calibration;
use crate::calibrate::compare_server::compare;
use crate::calibrate::kept::{BY_CATEGORY, FOUND, Kept};
use crate::calibrate::predict::{AcceptanceFrom, Prediction};
use crate::calibrate::rounded::rounded;
use crate::calibrate::source::{Source, open_all};
use crate::calibrate::synthetic::{LAW, Law, Lengths, write_recording};
use crate::compare::numbers::{E2E, THROUGHPUT, TPOT};
use crate::compare::page_text::page_text;
use crate::compare::server_runs::ServerComparison;
use std::path::Path;
use std::sync::OnceLock;

fn calibrated(folder: &Path, lengths: &[u32], law: &Law) -> (Calibration, Vec<Source>) {
    let paths: Vec<_> = lengths.iter().flat_map(|&k| [1, 4, 8].map(|c| law.write(folder, k, c, 1))).collect();
    (Calibration::of(open_all(&paths).unwrap(), vec![]).unwrap(), open_all(&paths).unwrap())
}

/// Overwriting a calibration's folder leaves no file of the earlier calibration. Otherwise the file
/// `by-category.toml` of the earlier calibration would lie beside the new costs.
#[test]
fn overwriting_removes_every_file_of_the_earlier_calibration() {
    let dir = tempfile::tempdir().unwrap();
    let (drafting, plain) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let folder = dir.path().join("cal");
    calibrated(drafting.path(), &[0, 3], &LAW).0.write(&folder, false).unwrap();
    assert!(folder.join(BY_CATEGORY).exists());
    // The new calibration is made from runs without draft tokens. Such runs do not show acceptance, so the calibration
    // writes no file about acceptance.
    calibrated(plain.path(), &[0], &LAW).0.write(&folder, true).unwrap();
    assert!(folder.join(FOUND).exists() && !folder.join(BY_CATEGORY).exists());
}

#[test]
fn the_true_costs_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    let fit = c.cost.as_ref().unwrap();
    // The synthetic server's log rounds step times to hundredths of a millisecond.
    assert!((fit.host_s - LAW.host_s).abs() < 5e-5, "{fit:?}");
    assert!((fit.draft.delta_s - LAW.draft_s).abs() < 2e-4, "{fit:?}");
    assert!(c.separated && c.held_out.by_time.mean_absolute < 5e-3, "{:?}", c.held_out);
    let positions = &c.acceptance.as_ref().unwrap().positions;
    for p in &positions[..3] {
        assert!(!p.extrapolated && (p.rate - LAW.rate).abs() < 0.05, "{p:?}");
    }
    assert!(positions[3].extrapolated && positions[3].reached == 0);
    assert_eq!(c.warnings, Vec::<String>::new());
    let verdict = c.verdict.as_ref().unwrap().in_words();
    assert!(verdict.starts_with("trusted for K = 0, 3, steps of up to 8 requests: later steps within 0."), "{verdict}");
}

/// The page, the file `calibration.json` and the experiment of a calibration from six runs and a file of SGLang. One
/// run is of a slower server, so that the fit has errors.
#[test]
fn everything_that_a_calibration_says() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("requests.jsonl");
    std::fs::write(&file, include_bytes!("../../../fuzz/seeds/sglang-requests/two.jsonl")).unwrap();
    let slower = Law { target_s: 9.3e-3, ..LAW };
    let law = |k, clients| if (k, clients) == (3, 4) { slower } else { LAW };
    let write = |k, clients| law(k, clients).write(dir.path(), k, clients, 1);
    let paths: Vec<_> = [0, 3].iter().flat_map(|&k| [1, 4, 8].map(|clients| write(k, clients))).collect();
    let foreign = crate::calibrate::foreign::read(&file, paths.len()).unwrap();
    let c = Calibration::of(open_all(&paths).unwrap(), vec![foreign]).unwrap();
    insta::assert_snapshot!("page", page_text(&crate::calibrate::page::page(&c)));
    let folder = dir.path().join("cal");
    c.write(&folder, false).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    let mut found: serde_json::Value = serde_json::from_str(&read(FOUND)).unwrap();
    found.as_object_mut().unwrap().remove("seal");
    insta::assert_snapshot!("found", rounded(&found).replace(&dir.path().display().to_string(), "DIR"));
    insta::assert_snapshot!("experiment", read(crate::calibrate::kept::EXPERIMENT));
}

/// The same for two runs with open arrivals.
#[test]
fn everything_that_a_calibration_on_open_arrivals_says() {
    let dir = tempfile::tempdir().unwrap();
    let runs = [0, 2].map(|k| write_recording(&LAW.open(k, 0.15, 90, 1), dir.path(), &format!("open-{k}")));
    let slow = write_recording(&LAW.open(2, 0.4, 50, 2), dir.path(), "slow");
    let c = Calibration::of(open_all(&[&runs[..], &[slow]].concat()).unwrap(), vec![]).unwrap();
    let loads: Vec<_> = c.loads().into_iter().map(|load| (load.name, load.runs.len(), load.requests)).collect();
    let [(slow, 1, 50), (fast, 2, 90)] = &loads[..] else { panic!("{loads:?}") };
    assert_eq!((slow.as_str(), fast.as_str()), ("log of slow, 2.5 requests/s", "log of open-0, 6.66 requests/s"));
    insta::assert_snapshot!("open_page", page_text(&crate::calibrate::page::page(&c)));
    let folder = dir.path().join("cal");
    c.write(&folder, false).unwrap();
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).unwrap();
    insta::assert_snapshot!("open_experiment", read(crate::calibrate::kept::EXPERIMENT));
    insta::assert_snapshot!("open_trace", read(&format!("traces/{}", c.traces()[2].0)));
}

#[test]
fn costs_of_less_than_a_hundred_steps_are_not_judged() {
    let dir = tempfile::tempdir().unwrap();
    let of = |requests: u32| {
        let run = write_recording(&LAW.closed(0, 1, requests, 1), dir.path(), &format!("{requests}"));
        Calibration::of(open_all(&[run]).unwrap(), vec![]).unwrap()
    };
    let (few, enough) = (of(2), of(3));
    let said = |c: &Calibration| c.warnings.iter().any(|w| w.starts_with("the costs are fitted to "));
    assert_eq!((few.rows.len(), said(&few), few.verdict.as_ref().unwrap().trusted), (79, true, None));
    assert_eq!((enough.rows.len(), said(&enough)), (119, false));
    assert!(enough.verdict.unwrap().trusted.is_some());
}

/// The verdict states the errors of held-out steps and of held-out runs, if there are any.
#[test]
fn a_verdict_says_what_was_held_out() {
    let dir = tempfile::tempdir().unwrap();
    let one = Calibration::of(open_all(&[LAW.write(dir.path(), 0, 4, 1)]).unwrap(), vec![]).unwrap();
    let verdict = one.verdict.unwrap().in_words();
    let end = |verdict: &str| verdict.rsplit_once(", costs and schedule to ± ").map(|(start, _)| start.to_owned());
    assert!(end(&verdict).is_some_and(|start| start.ends_with(" %, no run could be held out")), "{verdict}");
    let (six, _) = calibrated(dir.path(), &[0, 3], &LAW);
    let worst = six.held_out.by_run.iter().map(|(_, e)| e.bias.abs()).fold(0.0, f64::max);
    let verdict = six.verdict.unwrap().in_words();
    let seen = format!("runs it has not seen within {:.1} %", 100.0 * worst);
    assert!(end(&verdict).is_some_and(|start| start.ends_with(&seen)), "{verdict}");
}

/// Compares five observed runs with a calibration that was made from runs at draft lengths 0 and 3. Two of the five
/// runs have draft length 2, and two have draft length 5. The fifth run is one that the calibration was made from. The
/// comparison is made once for all tests.
fn comparison() -> &'static ServerComparison {
    static COMPARISON: OnceLock<ServerComparison> = OnceLock::new();
    COMPARISON.get_or_init(|| {
        let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let (c, fitted) = calibrated(dir.path(), &[0, 3], &LAW);
        c.write(&to.path().join("cal"), false).unwrap();
        let kept = Kept::read(&to.path().join("cal")).unwrap();
        let held = [2, 5].into_iter().flat_map(|k| [11, 12].map(|seed| LAW.write(dir.path(), k, 4, seed)));
        let mut runs = open_all(&held.collect::<Vec<_>>()).unwrap();
        runs.push(Source::open(&dir.path().join("k3-c4-s1.obs")).unwrap());
        compare(&kept, &runs, &fitted).unwrap()
    })
}

/// A server whose costs have terms that `calibrate` lacks: a square of the tokens, 2.1 ms more above 8 requests, and
/// host time by requests. Each moves a step of 12 requests with K = 3 by at least 10 %. The intervals of held-out draft
/// lengths must contain what the form of the costs cannot say.
#[test]
fn intervals_contain_what_the_form_of_the_costs_cannot_say() {
    let foreign = crate::calibrate::synthetic::Foreign { square_s: 1.5e-6, above_8_s: 2.1e-3, host_request_s: 0.2e-3 };
    let law = Law { token_s: 1e-4, foreign, ..LAW };
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let loads = [1, 4, 12];
    let fitted = [0, 3].into_iter().flat_map(|k| loads.map(|clients| law.write(dir.path(), k, clients, 1)));
    let fitted = open_all(&fitted.collect::<Vec<_>>()).unwrap();
    let c = Calibration::of(fitted, vec![]).unwrap();
    c.write(&to.path().join("cal"), false).unwrap();
    let mut kept = Kept::read(&to.path().join("cal")).unwrap();
    let held = [1, 2, 5].into_iter().flat_map(|k| loads.map(|clients| law.write(dir.path(), k, clients, 11)));
    let held = open_all(&held.collect::<Vec<_>>()).unwrap();
    let covered = |kept: &mut Kept, misfit: f64| {
        kept.misfit = misfit;
        compare(kept, &held, &c.sources).unwrap().held_out
    };
    let (without, with) = (covered(&mut kept, 0.0), covered(&mut kept, c.held_out.misfit));
    assert!(with.within_interval as f64 >= 0.9 * with.numbers as f64, "{with:?}, without the misfit {without:?}");
    assert!(without.within_interval <= with.within_interval, "{without:?}, {with:?}");
    assert!(without.median_half_width < with.median_half_width, "the misfit shows: {without:?}, {with:?}");
    assert!(with.median_half_width.unwrap() < 0.06, "{with:?}");
}

#[test]
fn a_length_that_was_not_observed_is_predicted() {
    for cell in &comparison().cells {
        for quantity in [THROUGHPUT, TPOT, E2E] {
            let predicted = cell.row(quantity).unwrap().predicted;
            assert!(predicted.error.abs() < 0.05, "K = {}: {predicted:?}", cell.k);
        }
    }
    let text = comparison().in_words();
    assert!(
        text.starts_with("8 of 8 held-out numbers are predicted within 5 %, 8 within 10 %. The largest error is "),
        "{text}"
    );
}

#[test]
fn everything_that_a_comparison_says() {
    insta::assert_snapshot!("comparison_words", comparison().in_words());
    insta::assert_snapshot!("comparison_page", page_text(&comparison().page()));
}

#[test]
fn runs_of_the_calibration_count_as_fitted() {
    let cells: Vec<_> = comparison().cells.iter().map(|c| (c.k, c.fitted)).collect();
    assert_eq!(cells, [(2, false), (3, true), (5, false)]);
}

#[test]
fn the_parts_of_an_error_make_up_the_error() {
    for row in comparison().cells.iter().flat_map(|cell| &cell.rows) {
        let p = row.predicted;
        assert!((p.of_acceptance + p.of_cost + p.of_schedule - p.error).abs() < 1e-9, "{row:?}");
    }
}

#[test]
fn acceptance_beyond_the_longest_observed_draft_is_a_warning() {
    let warnings = &comparison().warnings;
    assert!(warnings.iter().any(|w| w.contains("beyond position 3")), "{warnings:?}");
}

/// A test server's draft lengths by batch size: 3 tokens for up to four requests, 1 token for more.
const TABLE: [(u32, u32); 2] = [(4, 3), (64, 1)];

/// A calibration on two kinds of runs: one run whose draft length depends on the batch size by the table `lengths`,
/// and closed loops of 1, 4 and 8 clients with each fixed draft length of `fixed`.
fn by_table(lengths: Lengths, fixed: &[u32]) -> Calibration {
    let dir = tempfile::tempdir().unwrap();
    let mut paths: Vec<_> = fixed.iter().flat_map(|&k| [1, 4, 8].map(|c| LAW.write(dir.path(), k, c, 1))).collect();
    paths.push(write_recording(&LAW.rising(lengths, 320, 5), dir.path(), "dyn"));
    let sources = open_all(&paths).unwrap();
    assert_eq!(sources.last().unwrap().k, None, "it drafted several lengths");
    Calibration::of(sources, vec![]).unwrap()
}

/// Checks that the fitted times of the synthetic server's target pass and draft pass are within 2 % of the true
/// times, and that the costs are separate and trusted.
fn check_costs(c: &Calibration) {
    let fit = c.cost.as_ref().unwrap();
    assert!(c.separated, "{fit:?}");
    assert!((fit.draft.delta_s / LAW.draft_s - 1.0).abs() < 0.02, "{fit:?}");
    for &(tokens, seconds) in fit.batched.iter().filter(|p| p.0 > 1) {
        let law = LAW.target_s + LAW.token_s * tokens as f64;
        assert!((seconds / law - 1.0).abs() < 0.02, "{tokens} tokens: {seconds} s, by the law {law} s");
    }
    assert_eq!(c.verdict.as_ref().unwrap().trusted, Some(true), "{:?}", c.verdict);
}

#[test]
fn one_run_with_several_lengths_suffices_for_the_costs() {
    let c = by_table(Lengths::Table(&TABLE), &[]);
    check_costs(&c);
    assert_eq!(c.lengths().into_iter().collect::<Vec<_>>(), [1, 3]);
}

#[test]
fn a_run_with_several_lengths_agrees_with_runs_of_fixed_lengths() {
    for fixed in [&[0][..], &[3], &[0, 3]] {
        check_costs(&by_table(Lengths::Table(&TABLE), fixed));
    }
}

/// The test multiplies each step time by 0.9 or 1.1 at random. The fitted time of a draft pass must stay within a
/// tenth of the true time.
#[test]
fn noisy_steps_of_a_run_with_several_lengths_give_the_costs() {
    let mut rows = by_table(Lengths::Table(&TABLE), &[]).rows;
    let luck = foretoken_sim::Luck::new(7, foretoken_sim::Stream::Request, 0);
    for (i, row) in rows.iter_mut().enumerate() {
        row.elapsed_s *= 0.9 + 0.2 * luck.unit(i as u64).round();
    }
    let fit = crate::calibrate::fit::CostFit::to(&rows);
    assert!((0.09..0.11).contains(&fit.noise) && crate::calibrate::fit::tells_apart(&rows, fit.noise), "{fit:?}");
    let off = fit.draft.delta_s / LAW.draft_s - 1.0;
    assert!(off.abs() < 0.10, "off by {off}");
}

/// The server's table by batch size has draft lengths 3 and 0. Rounds of answers do not show steps without draft
/// tokens: by them alone, all steps would have K = 3.
#[test]
fn steps_without_drafts_count_as_such() {
    let c = by_table(Lengths::Table(&[(4, 3), (64, 0)]), &[]);
    check_costs(&c);
    // On this server, the drafter also runs once after a step that drafts nothing.
    assert_eq!(c.lengths().into_iter().collect::<Vec<_>>(), [1, 3]);
}

/// With vLLM's model runner V2, the drafter makes as many passes after every step as the longest length in the table.
/// So all steps of one run have equally many draft passes, and the run does not suffice to separate the cost of
/// drafting. With a second run without draft tokens, the two runs suffice.
#[test]
fn the_release_decides_how_many_draft_passes_a_step_makes() {
    let c = by_table(Lengths::TableOnV2(&TABLE), &[]);
    assert!(!c.separated && c.lengths().into_iter().eq([3]), "{:?}", c.lengths());
    check_costs(&by_table(Lengths::TableOnV2(&TABLE), &[0]));
}

/// With one draft length (K = 3), the whole time of a step counts as the target's pass. So no pass is free, and only
/// K = 3 can be predicted.
#[test]
fn one_length_alone_has_no_free_pass() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, fitted) = calibrated(dir.path(), &[3], &LAW);
    let fit = c.cost.as_ref().unwrap();
    assert!(!c.separated && fit.draft == foretoken_sim::Coefficients::FREE);
    // True time of a step of one request with four tokens in the target pass and three draft passes.
    let step = LAW.target_s + 4.0 * LAW.token_s + 3.0 * LAW.draft_s;
    assert!((fit.batched[0].1 / step - 1.0).abs() < 0.01, "{fit:?}");
    assert!(c.verdict.as_ref().unwrap().in_words().starts_with("trusted for K = 3 alone"), "{:?}", c.verdict);
    c.write(&to.path().join("cal"), false).unwrap();
    let kept = Kept::read(&to.path().join("cal")).unwrap();
    let runs = open_all(&[11, 12].map(|seed| LAW.write(dir.path(), 3, 4, seed))).unwrap();
    let against = compare(&kept, &runs, &fitted).unwrap();
    let off = against.cells[0].row(THROUGHPUT).unwrap().predicted.error;
    assert!(off.abs() < 0.05, "{off}");
}

/// Each run of this test is a recording of a few requests. Every second line of its step log is missing.
#[test]
fn tiny_damaged_recordings_have_no_free_pass_and_finite_noise() {
    let dir = tempfile::tempdir().unwrap();
    for seed in 0..60 {
        let (k, clients, requests) = (seed as u32 % 4, 1 + seed as u32 % 3, 1 + seed as u32 % 5);
        let mut recording = LAW.closed(k, clients, requests, seed);
        let mut nth = 0;
        recording.events.retain(|e| {
            nth += usize::from(matches!(e, crate::recordings::recording::Event::Log { .. }));
            !matches!(e, crate::recordings::recording::Event::Log { .. }) || nth % 2 == 0
        });
        let path = write_recording(&recording, dir.path(), &format!("tiny-{seed}"));
        let Ok(c) = Calibration::of(open_all(&[path]).unwrap(), vec![]) else { continue };
        let Some(profile) = c.profile() else { continue };
        assert_eq!(profile.check(), Ok(()));
        assert!(profile.noise_cv < 20.0, "seed {seed}: {profile:?}");
        assert!(c.cost.unwrap().batched[0].1 > 0.05 * LAW.target_s, "seed {seed}: {profile:?}");
        assert_ne!(c.verdict.unwrap().trusted, Some(true), "seed {seed}");
    }
}

/// The steps of this synthetic server take twice as long in the second half of each run.
#[test]
fn a_server_that_changes_is_not_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let mut runs = Vec::new();
    for (k, seed) in [(0, 1), (3, 2)] {
        let mut recording = LAW.closed(k, 4, 160, seed);
        let half = recording.events.len() / 2;
        for event in &mut recording.events[half..] {
            if let crate::recordings::recording::Event::Log { lines, .. } = event {
                let (before, rest) = lines[0].split_once("elapsed time: ").unwrap();
                let (ms, after) = rest.split_once(' ').unwrap();
                lines[0] = format!("{before}elapsed time: {:.2} {after}", 2.0 * ms.parse::<f64>().unwrap());
            }
        }
        runs.push(write_recording(&recording, dir.path(), &format!("k{k}")));
    }
    let c = Calibration::of(open_all(&runs).unwrap(), vec![]).unwrap();
    let verdict = c.verdict.clone().unwrap();
    assert_eq!(verdict.trusted, Some(false), "{verdict:?}");
    assert!(verdict.in_words().starts_with("not trusted: later steps: off by -"), "{verdict:?}");
    assert!(c.profile().unwrap().distrust.unwrap().contains("not trusted"));
}

#[test]
fn warnings_say_what_the_data_does_not_show() {
    let dir = tempfile::tempdir().unwrap();
    let (c, _) = calibrated(dir.path(), &[3], &LAW);
    assert!(!c.separated);
    assert!(c.warnings.iter().any(|w| w.contains("cannot be told apart: all runs drafted 3")), "{:?}", c.warnings);
    let one = open_all(&[LAW.write(dir.path(), 0, 1, 2)]).unwrap();
    let c = Calibration::of(one, vec![]).unwrap();
    for said in ["nothing was drafted", "one or two sizes only", "acceptance is not known"] {
        assert!(c.warnings.iter().any(|w| w.contains(said)), "{said}: {:?}", c.warnings);
    }
    let never = Law { rate: 0.0, ..LAW };
    let c = Calibration::of(open_all(&[never.write(dir.path(), 2, 4, 3)]).unwrap(), vec![]).unwrap();
    assert!(c.warnings.iter().any(|w| w.contains("not one drafted token was ever accepted")), "{:?}", c.warnings);
    let waiting = Law { host_s: 50e-3, ..LAW };
    let c = Calibration::of(open_all(&[waiting.write(dir.path(), 1, 4, 4)]).unwrap(), vec![]).unwrap();
    assert!(c.warnings.iter().any(|w| w.contains("--no-async-scheduling")), "{:?}", c.warnings);
}

#[test]
fn the_same_run_twice_and_what_is_no_recording_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = LAW.write(dir.path(), 1, 2, 1);
    let said = |paths: &[_]| open_all(paths).unwrap_err().message().to_owned();
    assert!(said(&[path.clone(), path.clone()]).contains("are the same recording"));
    assert!(said(&[dir.path().join("none")]).contains("no such file or folder"));
    assert!(said(&[dir.path().to_path_buf()]).contains("it holds no recordings"));
    std::fs::write(dir.path().join("x.obs"), "hello there, this is text").unwrap();
    assert!(said(&[dir.path().join("x.obs")]).contains("is no recording"));
}

#[test]
fn a_calibration_that_was_edited_is_not_believed() {
    let (dir, to) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    let folder = to.path().join("cal");
    c.write(&folder, false).unwrap();
    assert!(c.write(&folder, false).unwrap_err().message().contains("holds a calibration"));
    c.write(&folder, true).unwrap();
    let kept = Kept::read(&folder).unwrap();
    assert_eq!(kept.inputs, c.inputs());
    let path = folder.join("calibration.json");
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replace("\"separated\": true", "\"separated\": false")).unwrap();
    assert!(Kept::read(&folder).unwrap_err().message().contains("damaged or was changed"));
}

/// Two servers with different costs and acceptance get the same requests. The predictions of their two runs must be
/// equal, because a prediction reads only the requests of a run.
#[test]
fn a_prediction_reads_what_was_asked_and_nothing_else() {
    let (dir, to, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let (c, _) = calibrated(dir.path(), &[0, 3], &LAW);
    c.write(&to.path().join("cal"), false).unwrap();
    let kept = Kept::read(&to.path().join("cal")).unwrap();
    let table = AcceptanceFrom::Table(kept.table.as_ref().unwrap());
    let world = Prediction { cost: &kept.cost, acceptance: table, engine: &kept.engine, seed: 1 };
    let slow = Law { target_s: 30e-3, token_s: 1e-3, draft_s: 9e-3, host_s: 5e-3, rate: 0.2, ..LAW };
    let [a, b] = [LAW.write(dir.path(), 2, 4, 9), slow.write(other.path(), 2, 4, 9)].map(|p| Source::open(&p).unwrap());
    assert_ne!(a.run.run.records.finish, b.run.run.records.finish);
    let [a, b] = [a, b].map(|source| world.serve(&source, 2).unwrap().records);
    assert_eq!(a, b);
}
