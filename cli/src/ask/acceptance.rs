//! Which drafts are accepted: as the user counts it, or as it was measured for drafters of this kind.

use super::option;
use foretoken_profiler::hardware::golden::{self, Golden};
use foretoken_run::golden::perhaps_marginal;
use foretoken_run::spec::problem::{Result, nearest};
use foretoken_sim::DraftMethod;
use foretoken_sim::constant_rate;
use foretoken_traces::truth::speculation_profile::SpeculationProfile;
use std::path::Path;

/// Acceptance as a setting of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct Acceptance {
    pub source: toml::Value,
    /// Number of draft positions of which the acceptance is known.
    pub positions: u32,
}

const FORMS: &str = "--accept marginal=0.8,0.6 (of all rounds, the share that gets this far; vLLM's counters by position), \
                     conditional=0.8,0.75 (given that all before it were right), mean-length=2.4@3 (tokens a round at \
                     K = 3, with the target's own; SGLang's avg_spec_accept_length), drafted-share=0.47@3 (accepted by \
                     drafted tokens; vLLM's draft acceptance rate, llama.cpp's counters), golden=NAME (`foretoken \
                     acceptance list`), or profile=speculation_profile.json";

/// Reads `--accept`. `k` is the draft length at which a mean length counts if it names none.
pub fn read(given: &str, k: Option<u32>) -> Result<Acceptance> {
    let wrong = |what: String| option::wrong("--accept", given, format!("--accept: {what}"));
    let Some((form, values)) = given.split_once('=') else {
        return Err(wrong("a form is needed".into()).help(FORMS));
    };
    match form {
        "golden" => {
            let names = || golden::curves().iter().map(|c| c.name.as_str());
            let near = || nearest(values, names()).map_or(String::new(), |near| format!("did you mean {near}? "));
            let hint = || format!("{}There are {}", near(), names().collect::<Vec<_>>().join(", "));
            let no = || wrong("no golden curve has this name".into()).help(hint());
            return Ok(golden(golden::curve(values).ok_or_else(no)?));
        }
        "profile" => return of_profile(given, values),
        _ => {}
    }
    if matches!(form, "mean-length" | "drafted-share") {
        let (length, at) = values.split_once('@').map_or((values, None), |(l, at)| (l, Some(at)));
        let at = match (at, k) {
            (Some(at), _) => {
                let at = at.parse::<u32>().ok().filter(|k| (1..=32).contains(k));
                at.ok_or_else(|| wrong("behind the @ stands a draft length from 1 to 32".into()).help(FORMS))?
            }
            (None, Some(k)) if k > 0 => k,
            _ => {
                let example = if form == "mean-length" { "2.4@3" } else { "0.47@3" };
                return Err(
                    wrong("at which draft length?".into()).help(format!("for example --accept {form}={example}"))
                );
            }
        };
        let number: f64 = values_of(length).and_then(|v| <[f64; 1]>::try_from(v).ok()).map_or(f64::NAN, |[l]| l);
        let most = f64::from(at + 1);
        let length = match form {
            "mean-length" if (1.0..=most).contains(&number) => number,
            "mean-length" => {
                let range = format!("with {at} drafts a round has from 1 to {most} tokens, the target's own counted");
                let other = format!("{range}; accepted by drafted tokens is --accept drafted-share={number}@{at}");
                let help = if (0.0..1.0).contains(&number) { other } else { range };
                return Err(wrong("this mean length cannot be".into()).help(help));
            }
            _ if (0.0..=1.0).contains(&number) => 1.0 + number * f64::from(at),
            _ => {
                let help = match number {
                    n if (1.0..=most).contains(&n) => format!("tokens a round are --accept mean-length={n}@{at}"),
                    n => format!("vLLM prints per cent: --accept drafted-share={}@{at}", n / 100.0),
                };
                return Err(wrong("a share is from 0 to 1".into()).help(help));
            }
        };
        // One rate at all positions that gives this many tokens a round.
        let accepted = length - 1.0;
        let rate = constant_rate(at, |depth| match f64::from(depth) {
            // Whole tokens are always accepted, one more with the rest.
            d if d + 1.0 <= accepted => 1.0,
            d if d < accepted => accepted - d,
            _ => 0.0,
        });
        return Ok(Acceptance { source: table("constant", "rate", round(rate).into()), positions: at });
    }
    let rates = values_of(values).filter(|rates| rates.iter().all(|r| (0.0..=1.0).contains(r)));
    let Some(rates) = rates.filter(|rates| (1..=32).contains(&rates.len())) else {
        return Err(wrong("give shares from 0 to 1 with commas between them".into()).help(FORMS));
    };
    match form {
        "marginal" => {
            if let Some(i) = (1..rates.len()).find(|&i| rates[i] > rates[i - 1]) {
                let what = format!("position {} cannot be reached more often than position {i}", i + 1);
                return Err(wrong(what).help("rates that rise are conditional ones: --accept conditional=…"));
            }
            Ok(of_marginal(&rates))
        }
        "conditional" => Ok(by_depth(&rates)),
        other => Err(wrong(format!("no form is called {other}")).help(FORMS)),
    }
}

/// What speaks against what was given: shares under the name of rates, a profile of another target than `target`.
pub fn doubts(acceptance: &Acceptance, target: &str) -> Vec<String> {
    let rates = acceptance.source.get("by-depth").and_then(|of| of["rates"].as_array());
    let rates: Vec<f64> = rates.into_iter().flatten().filter_map(toml::Value::as_float).collect();
    let shares = perhaps_marginal(&rates).map(|(as_rates, as_shares)| {
        format!(
            "the rates are conditional, {as_rates:.2} tokens a round; if vLLM counted them by position, --accept \
             marginal=… gives {as_shares:.2}"
        )
    });
    let file = acceptance.source.get("profile").and_then(|of| of["path"].as_str());
    let other = file.and_then(|file| SpeculationProfile::read(Path::new(file)).ok()).and_then(|profile| {
        let theirs = profile.other_target(target)?;
        Some(format!("the profile is of the target {theirs}: acceptance belongs to the pair"))
    });
    shares.into_iter().chain(other).collect()
}

/// What a `speculation_profile.json` says. The experiment reads the file again, so its place is made absolute.
fn of_profile(given: &str, file: &str) -> Result<Acceptance> {
    let wrong = |what: String| option::wrong("--accept", given, what);
    let path = std::path::absolute(file).map_err(|e| wrong(format!("--accept: {e}")))?;
    let read = SpeculationProfile::read(&path).map_err(|e| wrong(e.to_string()).help(e.hint().to_owned()))?;
    let source = table("profile", "path", path.display().to_string().into());
    Ok(Acceptance { source, positions: read.num_speculative_tokens })
}

fn values_of(text: &str) -> Option<Vec<f64>> {
    text.split(',').map(|v| v.trim().parse().ok()).collect()
}

fn round(x: f64) -> f64 {
    (x * 1e6).round() / 1e6
}

fn table(kind: &str, key: &str, value: toml::Value) -> toml::Value {
    let inner: toml::Table = [(key.to_owned(), value)].into_iter().collect();
    toml::Value::Table([(kind.to_owned(), inner.into())].into_iter().collect())
}

fn by_depth(rates: &[f64]) -> Acceptance {
    let list: Vec<toml::Value> = rates.iter().map(|r| round(*r).into()).collect();
    Acceptance { source: table("by-depth", "rates", list.into()), positions: rates.len() as u32 }
}

/// Each position's share of the drafts that reached it.
fn of_marginal(rates: &[f64]) -> Acceptance {
    let before = [1.0].into_iter().chain(rates.iter().copied());
    by_depth(&rates.iter().zip(before).map(|(r, b)| if b > 0.0 { r / b } else { 0.0 }).collect::<Vec<_>>())
}

/// What is taken if the user does not say it: as in the middle of measured drafters, with a weak and a strong one.
pub struct Assumed {
    pub says: &'static str,
    pub middle: Acceptance,
    /// The weak and the strong drafter, with their names.
    pub others: [(&'static str, Acceptance); 2],
}

/// gpt-oss-120b's EAGLE-3 head: tokens a round by draft length, from counters of vLLM 0.22 at prompts of 7,000 tokens.
const GPT_OSS_EAGLE3: &[f64] = &[1.58, 1.92, 2.08, 2.16];
/// Longer drafts are not tried with an assumed acceptance.
const LONGEST_ASSUMED: u32 = 6;

/// The published mean lengths of a drafter.
fn golden(curve: &Golden) -> Acceptance {
    let positions = curve.lengths.last().map_or(0, |&(k, _)| k).min(LONGEST_ASSUMED);
    let source = [("golden".to_owned(), curve.name.as_str().into())];
    Acceptance { source: toml::Value::Table(source.into_iter().collect()), positions }
}

fn named(curve: &str) -> Acceptance {
    golden(golden::curve(curve).expect("a test names them all"))
}

fn lengths(tokens: &[f64]) -> Acceptance {
    let pairs = (1i64..).zip(tokens).map(|(k, &tokens)| vec![k.into(), toml::Value::from(tokens)].into());
    Acceptance {
        source: table("mean-length", "lengths", pairs.collect::<Vec<toml::Value>>().into()),
        positions: tokens.len() as u32,
    }
}

fn lookup(match_rate: f64) -> Acceptance {
    let inner: toml::Table = [("match_rate".to_owned(), match_rate.into())].into_iter().collect();
    Acceptance {
        source: toml::Value::Table([("prompt-lookup".to_owned(), inner.into())].into_iter().collect()),
        positions: 5,
    }
}

fn constant(rate: f64, positions: u32) -> Acceptance {
    Acceptance { source: table("constant", "rate", rate.into()), positions }
}

/// The acceptance that is taken without `--accept` for a drafter: `name` is its preset, if it has one. A drafter with
/// published lengths takes its own, another one the lengths of a drafter of its kind.
pub fn assumed(method: DraftMethod, name: &str) -> Assumed {
    let three = |says: &'static str, weak: (_, Acceptance), middle: &str, strong: (_, &str)| Assumed {
        says: golden::of_drafter(name).map_or(says, |_| "the drafter itself on coding prompts"),
        middle: golden::of_drafter(name).map_or_else(|| named(middle), golden),
        others: [weak, (strong.0, named(strong.1))],
    };
    match method {
        DraftMethod::Eagle | DraftMethod::Eagle3 => three(
            "MiniMax-M3's EAGLE-3 head",
            ("gpt-oss-120b's EAGLE-3 head", lengths(GPT_OSS_EAGLE3)),
            "minimax-m3-eagle3",
            ("Kimi-K2.5's EAGLE-3 head", "kimi-k2.5-eagle3"),
        ),
        DraftMethod::Mtp => three(
            "GLM-5.2's MTP module",
            ("DeepSeek-V4-Pro's MTP module", named("deepseek-v4-pro-mtp")),
            "glm-5.2-mtp",
            ("Qwen3.5-397B's MTP module", "qwen3.5-397b-a17b-mtp"),
        ),
        DraftMethod::Dflash | DraftMethod::Dspark | DraftMethod::DsparkFillIn => three(
            "DeepSeek-V4-Pro's DSpark drafter",
            ("Kimi-K3's DSpark drafter", named("kimi-k3-dspark")),
            "deepseek-v4-pro-0813-dspark",
            ("Kimi-K3's with block verification", "kimi-k3-dspark-block"),
        ),
        DraftMethod::Ngram | DraftMethod::Suffix => Assumed {
            says: "a lookup that matches at 30 % of the positions",
            middle: lookup(0.3),
            others: [("15 % matches", lookup(0.15)), ("60 % matches", lookup(0.6))],
        },
        DraftMethod::DraftModel => Assumed {
            says: "a draft model that is right in 70 % of its drafts",
            middle: constant(0.7, 5),
            others: [("right in 55 %", constant(0.55, 5)), ("right in 85 %", constant(0.85, 5))],
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(given: &str) -> Vec<f64> {
        let source = read(given, Some(3)).unwrap().source;
        source["by-depth"]["rates"].as_array().unwrap().iter().map(|r| r.as_float().unwrap()).collect()
    }

    #[test]
    fn marginal_rates_are_divided_and_conditional_ones_taken() {
        assert_eq!(rates("marginal=0.8,0.6,0.3"), [0.8, 0.75, 0.5]);
        assert_eq!(rates("conditional=0.8,0.9"), [0.8, 0.9]);
        assert_eq!(rates("marginal=0.5,0,0"), [0.5, 0.0, 0.0]);
    }

    #[test]
    fn a_mean_length_is_one_rate() {
        let of = |given: &str, k| read(given, k).unwrap().source["constant"]["rate"].as_float().unwrap();
        // 0.5 + 0.25 + 0.125 accepted of three drafts.
        assert!((of("mean-length=1.875@3", None) - 0.5).abs() < 1e-5);
        assert!((of("mean-length=1.875", Some(3)) - 0.5).abs() < 1e-5);
        assert!((of("mean-length=4@3", None) - 1.0).abs() < 1e-5);
        // 0.875 accepted of three drafts.
        assert!((of("drafted-share=0.2916666667@3", None) - 0.5).abs() < 1e-5);
    }

    #[test]
    fn the_wrong_form_gets_a_hint() {
        for (given, k, help) in [
            ("marginal=0.5,0.6", None, "--accept conditional="),
            ("mean-length=5@3", None, "from 1 to 4 tokens"),
            ("mean-length=2", None, "mean-length=2.4@3"),
            ("mean-length=0.47@3", None, "--accept drafted-share=0.47@3"),
            ("drafted-share=2.2@3", None, "--accept mean-length=2.2@3"),
            ("drafted-share=40@3", None, "--accept drafted-share=0.4@3"),
            ("drafted-share=0.4", None, "drafted-share=0.47@3"),
            ("golden=glm-5.2-mpt", None, "did you mean glm-5.2-mtp"),
            ("0.5,0.4", None, "--accept marginal="),
            ("marginal=50,40", None, "--accept marginal="),
            ("rate=0.5", None, "--accept marginal="),
            ("golden=glm-5.3-mtp-thinking", None, "did you mean glm-5.2-mtp-thinking? There are "),
        ] {
            let wrong = read(given, k).unwrap_err();
            assert_eq!(wrong.pointed_at(), Some(given));
            assert!(wrong.help_text().contains(help), "{given}: {}", wrong.help_text());
        }
    }

    #[test]
    fn an_assumed_drafter_lies_between_its_neighbours() {
        let tokens = |a: &Acceptance| match a.source.get("golden") {
            Some(name) => golden::curve(name.as_str().unwrap()).unwrap().lengths().at(3).unwrap(),
            None => a.source["mean-length"]["lengths"][2][1].as_float().unwrap(),
        };
        for method in [DraftMethod::Eagle3, DraftMethod::Mtp, DraftMethod::Dflash] {
            let Assumed { middle, others, .. } = assumed(method, "another");
            let [weak, strong] = others.map(|(_, a)| tokens(&a));
            assert!(weak < tokens(&middle) && tokens(&middle) <= strong + 0.02, "{method:?}");
        }
        let own = assumed(DraftMethod::Mtp, "deepseek-v4-pro-mtp");
        assert_eq!(own.middle.source["golden"].as_str(), Some("deepseek-v4-pro-mtp-thinking"));
        assert!(own.says.starts_with("the drafter itself"));
    }
}
