//! Recommendations for a synthetic server with known costs. The right advice follows from a formula.

use super::*;
use crate::calibrate::calibration::Calibration;
use crate::calibrate::kept::{EXPERIMENT, Known, PROFILE};
use crate::calibrate::rounded::rounded;
use crate::calibrate::source::open_all;
use crate::calibrate::synthetic::{LAW, Law};
use crate::compare::page_text::page_text;
use foretoken_profiler::hardware::LatencySpec;
use foretoken_run::profiled::read_calibrated;
use foretoken_sim::{Coefficients, HostLaw};
use std::path::{Path, PathBuf};

/// Writes a calibration on runs of the synthetic server `law`: closed loops of 1, 4 and 8 clients with each draft
/// length of `lengths`. Returns the calibration's folder.
fn calibrated(law: &Law, lengths: &[u32], dir: &Path) -> PathBuf {
    let runs: Vec<_> = lengths.iter().flat_map(|&k| [1, 4, 8].map(|clients| law.write(dir, k, clients, 1))).collect();
    let folder = dir.join("calibrated");
    Calibration::of(open_all(&runs).unwrap(), vec![]).unwrap().write(&folder, false).unwrap();
    folder
}

fn ask(folder: &Path, clients: u32) -> Question {
    Question {
        text: std::fs::read_to_string(folder.join(EXPERIMENT)).unwrap(),
        file: folder.join(EXPERIMENT),
        sets: vec![format!("workload.arrivals={{ closed-loop = {clients} }}"), "engine.max_num_seqs=8".into()],
        engine: Engine::Vllm,
        objective: Objective { of: Goal::MeanE2e, p99_tpot_s: None },
        longest: 5,
        now: Now::fixed(0, "stated"),
        method: None,
        model: None,
        known: Some(Known::read(folder).unwrap()),
    }
}

pub(super) fn answer(question: &Question) -> Advice {
    recommend(question, &AtomicBool::new(false)).unwrap()
}

/// Output tokens per second of the synthetic server `law` with `n` decoding requests that draft `k` tokens: expected
/// tokens of a step over the step's time.
fn rate(law: &Law, n: f64, k: i32) -> f64 {
    let tokens = (1.0 - law.rate.powi(k + 1)) / (1.0 - law.rate);
    let verified = n * f64::from(k + 1);
    n * tokens / (law.target_s + law.host_s + law.token_s * verified + law.draft_s * f64::from(k))
}

#[test]
fn the_best_length_is_found() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    for clients in [1, 8] {
        let advice = answer(&ask(&folder, clients));
        let n = f64::from(clients);
        let best = (0..=5).max_by(|&a, &b| rate(&LAW, n, a).total_cmp(&rate(&LAW, n, b))).unwrap();
        let fixed = advice.single.as_ref().unwrap().longest;
        // The function `rate` leaves out prompts, ends of answers and the random draw of acceptance. So a rate up to
        // 3 % below the best rate of `rate` is allowed.
        assert!(rate(&LAW, n, fixed as i32) > 0.97 * rate(&LAW, n, best), "{clients}: K = {fixed}, {best} on paper");
        assert_eq!(advice.verdict, Verdict::Change, "{}", advice.in_words());
        let gain = advice.at_loads[0].advised_gain.unwrap().mean;
        let paper = 1.0 - rate(&LAW, n, 0) / rate(&LAW, n, best);
        assert!((gain - paper).abs() < 0.06, "{clients}: {gain} and {paper} on paper");
    }
}

#[test]
fn break_even_follows_from_the_costs() {
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
    assert_eq!(loads.points[0].pays, loads.points[0].gain, "plain decoding runs now");
}

/// For a drafter that makes all draft tokens in one pass, the break-even counts one pass, whatever the draft length.
#[test]
fn a_block_drafter_breaks_even_on_one_pass() {
    let dir = tempfile::tempdir().unwrap();
    let mut question = ask(&calibrated(&LAW, &[0, 3], dir.path()), 4);
    question.sets.push("hardware.drafting=\"parallel\"".into());
    let advice = answer(&question);
    assert!(advice.break_even.iter().any(|b| b.k > 1), "{:?}", advice.break_even);
    for b in &advice.break_even {
        let (n, k) = (f64::from(b.batch), f64::from(b.k));
        let step =
            |tokens: f64, passes: f64| LAW.target_s + LAW.host_s + LAW.token_s * n * tokens + LAW.draft_s * passes;
        let paper = (step(k + 1.0, 1.0) / step(1.0, 0.0) - 1.0) / k;
        assert!((b.needs - paper).abs() < 0.05, "{b:?}: {paper} on paper");
    }
}

#[test]
fn slow_drafts_are_advised_against_and_nothing_is_to_be_started() {
    let dir = tempfile::tempdir().unwrap();
    let slow = Law { draft_s: 14e-3, ..LAW };
    let folder = calibrated(&slow, &[0, 3], dir.path());
    for now in [0, 3] {
        let advice = answer(&Question { now: Now::fixed(now, "stated"), ..ask(&folder, 4) });
        assert_eq!(advice.verdict, Verdict::DoNotSpeculate, "{}", advice.in_words());
        assert_eq!((advice.best.as_ref().unwrap().longest, advice.starts.len()), (0, 0));
        assert!(advice.break_even.iter().all(|b| b.needs > b.has.unwrap()), "{:?}", advice.break_even);
        assert_eq!(advice.at_loads[0].advised_gain.unwrap().mean > 0.2, now == 3);
    }
}

#[test]
fn without_enough_data_the_advice_is_what_to_observe_next() {
    for (lengths, next) in [(&[3][..], "observe K = 0 next"), (&[0], "observe K = 3 next")] {
        let dir = tempfile::tempdir().unwrap();
        let folder = calibrated(&LAW, lengths, dir.path());
        let advice = answer(&ask(&folder, 4));
        let Verdict::Unknown(why) = &advice.verdict else { panic!("{}", advice.in_words()) };
        assert!(why.contains(next), "{why}");
        assert!(advice.confirm.as_ref().is_some_and(|command| command.starts_with("foretoken observe http://stub/ ")));
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
    let best = answer(&base).best.unwrap().longest;
    let there = answer(&Question { now: Now::fixed(best, "stated"), ..base });
    assert!(matches!(there.verdict, Verdict::Stay), "{}", there.in_words());
}

#[test]
fn deeper_than_observed_is_said_to_be_extrapolated() {
    let dir = tempfile::tempdir().unwrap();
    let cheap = Law { draft_s: 2e-4, rate: 0.95, ..LAW };
    let folder = calibrated(&cheap, &[0, 1], dir.path());
    let advice = answer(&ask(&folder, 1));
    assert!(advice.best.unwrap().longest > 1);
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
    let most = advice.table.iter().map(|r| r.2).chain(advice.best.map(|best| best.longest)).max().unwrap();
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
        // The time of a step with 5 draft tokens per request (K = 5) includes five draft passes.
        let paper = 1.0 / (LAW.target_s + LAW.host_s + LAW.token_s * n + 5.0 * LAW.draft_s);
        assert!((steps / paper - 1.0).abs() < 0.02, "{n}: {steps} and {paper}");
    }
}

/// In SGLang's table of step times, a request's context is its prompt and half of its output: here 60 + 40 / 2 tokens.
#[test]
fn steps_of_the_table_read_the_prompt_and_half_of_the_output() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let file = folder.join(PROFILE);
    let mut profile = read_calibrated("profile", &std::fs::read_to_string(&file).unwrap()).unwrap();
    let linear = |alpha_s, delta_s| LatencySpec::Linear(Coefficients { alpha_s, gamma_s: 0.0, delta_s });
    (profile.target.cost, profile.draft.cost) = (linear(1e-4, 0.01), linear(1e-5, 0.002));
    (profile.step_overhead_s, profile.host) = (1e-3, HostLaw::default());
    std::fs::write(&file, profile.to_toml()).unwrap();
    let advice = answer(&Question { engine: Engine::Sglang, ..ask(&folder, 4) });
    let json: serde_json::Value = serde_json::from_str(&advice.starts[1].text).unwrap();
    let column = |name: &str| json[name].as_array().unwrap().iter().map(|v| v.as_f64().unwrap()).collect::<Vec<_>>();
    for (tokens, rate) in column("sample_batch_tokens").iter().zip(column("sample_steps_per_sec")) {
        let context = 80.0 * (tokens / 6.0).ceil();
        let paper = 1e-4 * context + 0.01 + 5.0 * (1e-5 * context + 0.002) + 1e-3;
        assert!((rate * paper - 1.0).abs() < 1e-6, "{tokens}: {rate} and {} on paper", 1.0 / paper);
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

/// A question to `recommend` about every observed load of the calibration in `folder`.
fn ask_all(folder: &Path) -> Question {
    Question { sets: vec!["engine.max_num_seqs=8".into()], ..ask(folder, 1) }
}

#[test]
fn each_observed_load_has_a_row() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let advice = answer(&ask_all(&folder));
    let names: Vec<&str> = advice.at_loads.iter().map(|at| at.load.as_str()).collect();
    assert_eq!(names, ["closed loop of 1", "closed loop of 4", "closed loop of 8"]);
    for at in &advice.at_loads {
        assert_eq!(at.runs.len(), 2, "K = 0 and K = 3 were observed at {}", at.load);
        let n: f64 = at.load.rsplit(' ').next().unwrap().parse().unwrap();
        let (single, best) = (at.single.unwrap() as i32, (0..=5).map(|k| rate(&LAW, n, k)).fold(0.0, f64::max));
        assert!(rate(&LAW, n, single) > 0.97 * best, "{}: K = {single}", at.load);
    }
    let best = advice.best.as_ref().unwrap();
    for at in &advice.at_loads {
        let cost = at.candidates.iter().find(|c| c.policy == best.policy).unwrap().cost.unwrap();
        assert!(cost / at.least().unwrap() - 1.0 <= best.worst_loss + 1e-12, "{}", at.load);
    }
    assert!(best.worst_loss <= advice.single.as_ref().unwrap().worst_loss + 0.01);
    for words in ["closed loop of 1; closed loop of 4; closed loop of 8", "stub at http://stub/", "3 seeds"] {
        assert!(advice.holds().contains(words), "{words}: {}", advice.holds());
    }
}

/// On this synthetic server, verification is cheap in a batch of one request and expensive in a batch of eight. So no
/// fixed draft length is right for one client and for eight clients.
#[test]
fn where_the_length_depends_on_the_load_the_table_is_the_advice() {
    let dir = tempfile::tempdir().unwrap();
    let steep = Law { token_s: 2e-3, draft_s: 5e-4, rate: 0.85, ..LAW };
    let folder = calibrated(&steep, &[0, 3], dir.path());
    let advice = answer(&ask_all(&folder));
    assert!(advice.depends_on_load, "{}", advice.in_words());
    let (table, single) = (advice.by_table.as_ref().unwrap(), advice.single.as_ref().unwrap());
    assert!(table.worst_loss < single.worst_loss, "{}", advice.in_words());
    assert_eq!(advice.best.as_ref().unwrap().name, "table by batch size", "{}", advice.in_words());
    let said = advice.headline();
    assert!(said.starts_with("Run the table by batch size (1"), "{said}");
    assert!(said.contains(&format!("{}, the best single one, loses", single.name)), "{said}");
    let paste = advice.paste.unwrap();
    assert!(paste.contains("num_speculative_tokens_per_batch_size"), "{paste}");
    assert!(advice.lacks.unwrap().contains("--method NAME --model NAME"));
}

/// Compares the page, the terminal's text and the data of an advice with snapshots. `folder` is the folder of the
/// question's experiment.
pub(super) fn snapshots(name: &str, advice: &Advice, folder: &Path) {
    let folder = folder.display().to_string();
    let show = |what: &str, text: String| {
        insta::assert_snapshot!(format!("{name}_{what}"), text.replace(&folder, "FOLDER"));
    };
    show("page", page_text(&page::page(advice)));
    show("words", advice.in_words());
    show("json", rounded(advice));
}

#[test]
fn everything_that_an_advice_on_observed_loads_says() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let advice = answer(&Question { now: Now::fixed(2, "stated"), longest: 4, ..ask_all(&folder) });
    snapshots("observed", &advice, &folder);
    let advice = answer(&Question { engine: Engine::Sglang, longest: 3, ..ask(&folder, 4) });
    snapshots("sglang", &advice, &folder);
}

#[test]
fn a_closed_loop_from_which_on_drafting_does_not_pay_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let advice = answer(&ask_all(&calibrated(&LAW, &[0, 3], dir.path())));
    // The gain of the best draft length over plain decoding at the loops of 1, 4 and 8 clients.
    let said = |gains: [f64; 3]| {
        let mut advice = advice.clone();
        for (at, gain) in advice.at_loads.iter_mut().zip(gains) {
            for c in at.candidates.iter_mut().filter(|c| c.fixed) {
                c.cost = Some(if c.longest == 0 { 1.0 } else { 1.0 - gain + 0.01 * f64::from(c.longest - 1) });
            }
        }
        advice.from_where()
    };
    let from = |from: u32, to: u32| {
        Some(format!("Do not speculate from the closed loop of {from} on; up to the closed loop of {to} it pays."))
    };
    assert_eq!(said([0.2, 0.1, -0.1]), from(8, 4));
    assert_eq!(said([0.2, -0.1, -0.2]), from(4, 1));
    assert_eq!(said([-0.1, -0.1, -0.2]), None, "it pays nowhere");
    assert_eq!(said([0.3, 0.2, 0.1]), None, "it pays everywhere");
    assert_eq!(said([0.2, -0.1, 0.1]), None, "it pays again");
    assert_eq!(said([0.2, 0.0, -0.1]), from(4, 1), "no gain is not paying");
}

#[test]
fn what_runs_now_is_what_was_observed_last_and_the_others_are_named() {
    let dir = tempfile::tempdir().unwrap();
    let known = Known::read(&calibrated(&LAW, &[0, 3], dir.path())).unwrap();
    let now = Now::observed(&known);
    assert_eq!((now.name.as_str(), now.k()), ("K = 3", Some(3)));
    assert!(now.why.contains("k3-c8-s1, the run that was observed last"), "{}", now.why);
    assert!(now.why.contains("plain decoding was observed too, and --now K takes another"), "{}", now.why);
}

/// A measured run that is faster than what is advised, and a calibration that is not trusted, lead the advice.
#[test]
fn distrust_and_measured_runs_that_contradict_the_advice_lead_it() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let ask =
        Question { longest: 3, sets: vec!["engine.max_num_seqs=8".into(), "seeds=[1]".into()], ..ask_all(&folder) };
    let honest = answer(&ask);
    assert_eq!((honest.contradicting.len(), &honest.not_trusted), (0, &None), "{}", honest.headline());
    honest.judge().unwrap();
    let mut known = ask.known.clone().unwrap();
    let load = known.loads.iter_mut().find(|load| load.name == "closed loop of 1").unwrap();
    for run in &mut load.runs {
        run.mean_e2e_s = run.mean_e2e_s.map(|s| if run.k == Some(0) { 0.3 * s } else { s });
    }
    let why = "not trusted: a reason";
    known.verdict = Some(crate::calibrate::verdict::Verdict { trusted: Some(false), why: "a reason".into() });
    let advice = answer(&Question { known: Some(known), ..ask });
    let [found] = &advice.contradicting[..] else { panic!("{:?}", advice.contradicting) };
    assert_eq!((found.k, found.load.as_str(), found.run.as_str()), (0, "closed loop of 1", "k0-c1-s1"));
    let first = "The measurements contradict this advice: at closed loop of 1, plain decoding was measured (k0-c1-s1)";
    assert!(advice.headline().starts_with(first), "{}", advice.headline());
    assert!(advice.headline().contains(&format!(". The calibration is {why}. ")), "{}", advice.headline());
    assert!(!advice.warnings.iter().any(|w| w.contains(why)), "{:?}", advice.warnings);
    let refused = advice.judge().unwrap_err();
    assert!(refused.message().starts_with("the measurements contradict this advice"), "{}", refused.message());
    // The same row does not contradict advice for another number.
    let share = Objective { of: Goal::Slo, p99_tpot_s: None };
    assert_eq!(measured::contradicting(&[], &advice.at_loads, share, 0, 0.0), []);
}

#[test]
fn page_and_terminal_say_the_same() {
    let dir = tempfile::tempdir().unwrap();
    let folder = calibrated(&LAW, &[0, 3], dir.path());
    let sets = vec!["engine.max_num_seqs=8".into(), "seeds=[1]".into()];
    let advice = answer(&Question { now: Now::fixed(3, "stated"), sets, longest: 3, ..ask_all(&folder) });
    let html = page::page(&advice).html();
    let said = advice.in_words();
    let entities = [('&', "&amp;"), ('<', "&lt;"), ('>', "&gt;"), ('\'', "&#x27;"), ('"', "&quot;"), ('/', "&#x2f;")];
    let escaped = |text: &str| entities.iter().fold(text.to_owned(), |text, &(from, to)| text.replace(from, to));
    let both =
        [advice.headline(), advice.holds(), advice.now_in_words(), advice.stops().unwrap(), advice.losses().unwrap()];
    let facts = advice.paste.iter().chain(&advice.lacks).chain(&advice.confirm).cloned();
    let names = advice.at_loads.iter().map(|at| at.load.clone());
    // The break-evens are sentences on the terminal and a table on the page.
    assert!(advice.break_even.iter().map(words::pays).all(|words| said.contains(&words)), "{said}");
    assert!(html.contains(&format!("{:.0} %", 100.0 * advice.break_even[0].needs)), "the page lacks its break-evens");
    for words in both.into_iter().chain(facts).chain(names) {
        assert!(said.contains(&words), "{words}: {said}");
        assert!(html.contains(&escaped(&words)), "the page lacks: {words}");
    }
    assert!(!html.contains("vllm-dynamic["), "labels are names");
    assert!(page::figure(&advice).unwrap().svg.contains("Against K = 3"));
}
