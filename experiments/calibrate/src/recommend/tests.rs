//! Advice on a server of a known law: what it must be follows on paper.

use super::*;
use crate::calibration::Calibration;
use crate::kept::{EXPERIMENT, Known};
use crate::source::open_all;
use crate::synthetic::{LAW, Law};
use std::path::Path;
use std::path::PathBuf;

/// A calibration of the law at these lengths.
fn calibrated(law: &Law, lengths: &[u32], dir: &Path) -> PathBuf {
    let runs: Vec<_> = lengths.iter().flat_map(|&k| [1, 4, 8].map(|clients| law.write(dir, k, clients, 1))).collect();
    let folder = dir.join("calibrated");
    Calibration::of(open_all(&runs).unwrap(), vec![]).unwrap().write(&folder, false).unwrap();
    folder
}

fn ask(folder: &Path, clients: u32) -> Question {
    Question {
        file: folder.join(EXPERIMENT),
        sets: vec![format!("workload.arrivals={{ closed-loop = {clients} }}"), "engine.max_num_seqs=8".into()],
        engine: Engine::Vllm,
        objective: Objective { of: Goal::MeanE2e, p99_tpot_s: None },
        longest: 5,
        now: 0,
        method: None,
        model: None,
        known: Some(Known::read(folder).unwrap()),
    }
}

fn answer(question: &Question) -> Advice {
    recommend(question, &AtomicBool::new(false)).unwrap()
}

/// Tokens a second of the law with n requests that decode, K drafted: what is accepted over what it takes.
fn rate(law: &Law, n: f64, k: i32) -> f64 {
    let tokens = (1.0 - law.rate.powi(k + 1)) / (1.0 - law.rate);
    let verified = n * f64::from(k + 1);
    n * tokens / (law.target_s + law.host_s + law.token_s * verified + law.draft_s * f64::from(k))
}

#[test]
fn the_best_length_of_a_law_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    for clients in [1, 8] {
        let advice = answer(&ask(&folder, clients));
        let n = f64::from(clients);
        let best = (0..=5).max_by(|&a, &b| rate(&LAW, n, a).total_cmp(&rate(&LAW, n, b))).unwrap();
        let fixed = advice.fixed.unwrap();
        // Prompts, ends of answers and the draw of acceptance are not on paper: no more than they can do.
        assert!(rate(&LAW, n, fixed as i32) > 0.97 * rate(&LAW, n, best), "{clients}: K = {fixed}, {best} on paper");
        assert_eq!(advice.verdict, Verdict::Change, "{}", advice.in_words());
        let gain = advice.gain.unwrap().mean;
        let paper = 1.0 - rate(&LAW, n, 0) / rate(&LAW, n, best);
        assert!((gain - paper).abs() < 0.06, "{clients}: {gain} and {paper} on paper");
    }
}

#[test]
fn break_even_is_what_the_law_needs() {
    let dir = tempfile::tempdir().unwrap();
    let advice = answer(&ask(&calibrated(&LAW, &[0, 3], dir.path()), 4));
    for b in &advice.break_even {
        let (n, k) = (f64::from(b.batch), f64::from(b.k));
        let step = |k: f64| LAW.target_s + LAW.host_s + LAW.token_s * n * (k + 1.0) + LAW.draft_s * k;
        let paper = (step(k) / step(0.0) - 1.0) / k;
        assert!((b.needs - paper).abs() < 0.05, "{b:?}: {paper} on paper");
        assert!(b.has.is_some_and(|has| (0.4..0.75).contains(&has)), "{b:?}");
    }
    assert_eq!(advice.break_even.iter().map(|b| b.batch).collect::<Vec<_>>(), [1, 2, 4, 8]);
    let loads = advice.loads.unwrap();
    assert!(loads.points.len() == 8 && loads.points.iter().all(|l| l.gain.is_some()));
    assert!(loads.points[0].gain.unwrap().mean > 0.1, "{loads:?}");
}

#[test]
fn slow_drafts_are_advised_against_and_nothing_is_to_be_started() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Law { draft_s: 14e-3, ..LAW };
    let folder = calibrated(&slow, &[0, 3], dir.path());
    for now in [0, 3] {
        let advice = answer(&Question { now, ..ask(&folder, 4) });
        assert_eq!(advice.verdict, Verdict::DoNotSpeculate, "{}", advice.in_words());
        assert_eq!((advice.fixed, advice.starts.len()), (Some(0), 0));
        assert!(advice.break_even.iter().all(|b| b.needs > b.has.unwrap()), "{:?}", advice.break_even);
        assert_eq!(advice.gain.unwrap().mean > 0.2, now == 3);
    }
}

#[test]
fn what_cannot_be_known_is_said_with_what_to_observe_next() {
    for (lengths, next) in [(&[3][..], "observe K = 0 next"), (&[0], "observe K = 3 next")] {
        let dir = tempfile::tempdir().unwrap();
        let folder = calibrated(&LAW, lengths, dir.path());
        let advice = answer(&ask(&folder, 4));
        let Verdict::Unknown(why) = &advice.verdict else { panic!("{}", advice.in_words()) };
        assert!(why.contains(next), "{why}");
        assert!(advice.headline().starts_with("You cannot know from this: "));
    }
}

#[test]
fn a_limit_that_nothing_keeps_and_uncertainty_count_against_a_change() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let base = ask(&folder, 4);
    let strict = Question { objective: Objective { of: Goal::MeanE2e, p99_tpot_s: Some(1e-6) }, ..base.clone() };
    assert!(matches!(answer(&strict).verdict, Verdict::Unknown(why) if why.contains("no candidate keeps the limit")));
    let mut doubtful = base.clone();
    doubtful.known.as_mut().unwrap().between_runs = 0.9;
    let advice = answer(&doubtful);
    assert_eq!(advice.verdict, Verdict::Stay, "{}", advice.in_words());
    let best = answer(&base).fixed.unwrap();
    let there = answer(&Question { now: best, ..base });
    assert!(matches!(there.verdict, Verdict::Stay), "{}", there.in_words());
}

#[test]
fn deeper_than_observed_is_said_to_be_extrapolated() {
    let dir = tempfile::tempdir().unwrap();
    let cheap = Law { draft_s: 2e-4, rate: 0.95, ..LAW };
    let folder = calibrated(&cheap, &[0, 1], dir.path());
    let advice = answer(&ask(&folder, 1));
    assert!(advice.fixed.unwrap() > 1);
    assert!(advice.warnings.iter().any(|w| w.contains("extrapolated; observe K = ")), "{:?}", advice.warnings);
}

#[test]
fn files_are_what_the_engines_read() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let vllm = Question { method: Some("draft_model".into()), model: Some("draft".into()), ..ask(&folder, 4) };
    let advice = answer(&vllm);
    let [start] = &advice.starts[..] else { panic!("{:?}", advice.starts) };
    let json: serde_json::Value = serde_json::from_str(&start.text).unwrap();
    assert_eq!((json["method"].as_str(), json["model"].as_str()), (Some("draft_model"), Some("draft")));
    let most = advice.table.iter().map(|r| r.2).chain(advice.fixed).max().unwrap();
    assert!(json["num_speculative_tokens"].as_u64().is_some_and(|k| k >= 1 && k <= u64::from(most)), "{json}");

    let advice = answer(&Question { engine: Engine::Sglang, ..ask(&folder, 4) });
    let [adaptive, dspark] = &advice.starts[..] else { panic!("{:?}", advice.starts) };
    assert_eq!((adaptive.file.as_str(), dspark.file.as_str()), ("adaptive_spec.json", "dspark-sps.json"));
    foretoken_policies::from_sglang_json(&adaptive.text).unwrap();
    let json: serde_json::Value = serde_json::from_str(&dspark.text).unwrap();
    let column = |name: &str| json[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<_>>();
    let (tokens, rates) = (column("sample_batch_tokens"), column("sample_steps_per_sec"));
    assert!(tokens.is_sorted() && tokens.len() == rates.len() && json["max_batch_tokens"] == 48);
    for (n, steps) in tokens.iter().zip(&rates) {
        // Five draft passes are part of a step.
        let paper = 1.0 / (LAW.target_s + LAW.host_s + LAW.token_s * n + 5.0 * LAW.draft_s);
        assert!((steps / paper - 1.0).abs() < 0.05, "{n}: {steps} and {paper}");
    }
}

#[test]
fn the_folder_holds_the_answer_its_figure_and_the_file_and_nothing_else_is_overwritten() {
    let dir = tempfile::tempdir().unwrap();
    let advice = answer(&ask(&calibrated(&LAW, &[0, 3], dir.path()), 4));
    let to = dir.path().join("advice");
    write(&advice, &to, false).unwrap();
    let mut names: Vec<_> =
        std::fs::read_dir(&to).unwrap().map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    assert_eq!(names, ["gain-over-load.svg", "recommendation.html", "recommendation.json", "speculative_config.json"]);
    assert!(write(&advice, &to, false).unwrap_err().message().contains("holds a recommendation"));
    let before = std::fs::read(to.join(ADVICE)).unwrap();
    write(&advice, &to, true).unwrap();
    assert_eq!(std::fs::read(to.join(ADVICE)).unwrap(), before, "the same bytes");
    std::fs::remove_file(to.join(ADVICE)).unwrap();
    assert!(write(&advice, &to, true).unwrap_err().message().contains("is not empty"));
}
