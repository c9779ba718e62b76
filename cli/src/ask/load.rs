//! The load that is asked about, and the lengths of its requests, as a workload of an experiment.

use super::option;
use foretoken_run::spec::problem::{Result, nearest};
use foretoken_traces::TraceFormat;
use std::path::PathBuf;

/// When requests arrive at a replica.
#[derive(Clone, Debug, PartialEq)]
pub enum Load {
    /// Clients in a closed loop.
    Clients(u32),
    /// Requests a second.
    Rate(f64),
    Log(PathBuf),
}

/// How long the requests are.
#[derive(Clone, Debug, PartialEq)]
pub enum Lengths {
    /// Mean tokens of prompt and output.
    Means(f64, f64),
    /// A named mix of a public trace.
    Mix(String),
    /// As long as the requests of the log.
    OfLog,
}

/// Clients that are taken without a load.
const CLIENTS: u32 = 16;
/// The mix that is taken without lengths: conversations of the Azure trace of 2023.
const MIX: &str = "azure-conv";
const MIXES: [&str; 7] =
    ["azure-conv", "azure-code", "mooncake-conv", "mooncake-synth", "sharegpt", "burstgpt", "spec-bench"];
/// Standard deviation of the logarithm of a length that is given as its mean (assumed).
const SIGMA: f64 = 0.3;
/// The same for requests that differ much.
const WIDE: f64 = 1.0;
/// Requests of a log that are simulated.
const OF_LOG: i64 = 1000;

/// What the options of a load say.
#[derive(Clone, Debug, Default)]
pub struct Said {
    pub clients: Option<u32>,
    pub rate: Option<f64>,
    pub log: Option<PathBuf>,
    pub input: Option<f64>,
    pub output: Option<f64>,
    pub lengths: Option<String>,
    /// The most tokens of a request, which the server allows.
    pub most: Option<f64>,
}

/// Another value in the place of an assumption: its name, and the `--set` arguments that take it.
pub type Other = (String, Vec<String>);

/// A load as settings: the workload, and what was taken for granted, with other workloads that make its band.
#[derive(Clone, Debug)]
pub struct Asked {
    pub load: Load,
    pub lengths: Lengths,
    pub assumed: Vec<String>,
    /// Assumptions with a band: the words, and `--set` arguments with their words.
    pub bands: Vec<(String, Vec<Other>)>,
    /// The most tokens of a request.
    most: Option<f64>,
}

pub fn read(said: &Said) -> Result<Asked> {
    let shown = |x: Option<f64>| x.map(|x| x.to_string());
    let log = said.log.as_ref().map(|path| path.display().to_string());
    let loads = [("--clients", said.clients.map(|n| n.to_string())), ("--rate", shown(said.rate)), ("--log", log)];
    let mut given = loads.into_iter().filter_map(|(name, value)| Some((name, value?)));
    if let (Some(first), Some(second)) = (given.next(), given.next()) {
        let message = format!("{} and {} are two loads", first.0, second.0);
        return Err(option::contradicts(first, second, message).help("give one of them"));
    }
    let bad = |name: &str, x: f64| option::wrong(name, &x.to_string(), format!("{name} {x} is no number above 0"));
    for (option, x) in [("--rate", said.rate), ("--input", said.input), ("--output", said.output)] {
        if let Some(x) = x.filter(|x| !(x.is_finite() && *x > 0.0)) {
            return Err(bad(option, x));
        }
    }
    let mut assumed = Vec::new();
    let mut bands = Vec::new();
    let load = match (said.clients, said.rate, &said.log) {
        (Some(0), ..) => return Err(bad("--clients", 0.0)),
        (Some(n), ..) => Load::Clients(n),
        (_, Some(rate), _) => Load::Rate(rate),
        (.., Some(path)) => {
            let full = std::path::absolute(path).unwrap_or(path.clone());
            let shown = path.display();
            TraceFormat::detect(&full).map_err(|e| {
                option::wrong("--log", &shown.to_string(), format!("--log {shown}: {e}"))
                    .help("docs/traces.md has the formats that are read")
            })?;
            assumed.push(format!("the first {OF_LOG} requests of the log"));
            Load::Log(full)
        }
        _ => {
            assumed.push(format!("{CLIENTS} clients"));
            Load::Clients(CLIENTS)
        }
    };
    let lengths = match (said.input, said.output, &said.lengths, &load) {
        (Some(_), _, Some(mix), _) | (_, Some(_), Some(mix), _) => {
            let means = [("--input", shown(said.input)), ("--output", shown(said.output))];
            let first = means.into_iter().find_map(|(name, value)| Some((name, value?))).expect("one is given");
            let message = "--lengths and --input or --output are two kinds of lengths";
            return Err(option::contradicts(first, ("--lengths", mix.clone()), message).help("give one"));
        }
        (Some(input), Some(output), ..) => {
            let words = format!("lengths spread around their means (log-normal, sigma {SIGMA})");
            bands.push((
                words,
                vec![(
                    format!("sigma {WIDE}"),
                    vec![format!("workload.lengths={}", log_normal(input, output, WIDE, said.most))],
                )],
            ));
            Lengths::Means(input, output)
        }
        (Some(x), None, ..) => {
            return Err(option::wrong("--input", &x.to_string(), "--input without --output").help("give both means"));
        }
        (None, Some(x), ..) => {
            return Err(option::wrong("--output", &x.to_string(), "--output without --input").help("give both means"));
        }
        (.., Some(mix), _) => {
            if !MIXES.contains(&mix.as_str()) {
                let near = nearest(mix, MIXES).map_or(String::new(), |near| format!("did you mean {near}? "));
                let help = format!("{near}There are {}", MIXES.join(", "));
                let message = format!("--lengths {mix}: no mix has this name");
                return Err(option::wrong("--lengths", mix, message).help(help));
            }
            Lengths::Mix(mix.clone())
        }
        (None, None, None, Load::Log(_)) => Lengths::OfLog,
        _ => {
            let other = |mix: &str| (mix.to_owned(), vec![format!("workload.lengths={}", mix_of(mix))]);
            bands.push((format!("lengths of {MIX}"), vec![other("sharegpt"), other("azure-code")]));
            Lengths::Mix(MIX.to_owned())
        }
    };
    Ok(Asked { load, lengths, assumed, bands, most: said.most })
}

fn mix_of(mix: &str) -> toml::Value {
    let text =
        if mix == "spec-bench" { "x = { spec-bench = {} }".into() } else { format!("x = {{ table = \"{mix}\" }}") };
    text.parse::<toml::Table>().expect("it is TOML")["x"].clone()
}

/// Log-normal lengths of these means.
fn log_normal(input: f64, output: f64, sigma: f64, most: Option<f64>) -> toml::Value {
    // A cut at eight times the mean changes the mean by under 1 % at a sigma of 1 or less.
    let law = |mean: f64| {
        // What the server allows is shared as the means are.
        let share = most.map_or(f64::INFINITY, |most| most * mean / (input + output));
        let max = (8.0 * mean).ceil().min(share.floor()) as i64;
        toml::Table::from_iter([
            ("mean".into(), mean.into()),
            ("sigma".into(), sigma.into()),
            ("max".into(), max.into()),
        ])
    };
    let both = toml::Table::from_iter([("prompt".into(), law(input).into()), ("output".into(), law(output).into())]);
    toml::Value::Table(toml::Table::from_iter([("log-normal".into(), both.into())]))
}

impl Asked {
    /// The share of the load that one of `replicas` gets, with the requests that a run has.
    pub fn workload(&self, replicas: u32) -> toml::Table {
        let table = |text: &str| text.parse::<toml::Table>().expect("it is TOML");
        let share = f64::from(replicas);
        let mut workload = match &self.load {
            Load::Clients(n) => {
                let n = n.div_ceil(replicas);
                // Twelve requests a client, of which the first waits for the prompts of all clients.
                table(&format!("arrivals = {{ closed-loop = {n} }}\nrequests = {}", (12 * n).max(64)))
            }
            Load::Rate(rate) => {
                table(&format!("arrivals = {{ poisson = {{ rate = {:?} }} }}\nrequests = 400", rate / share))
            }
            Load::Log(path) => {
                let path = toml::Value::from(path.display().to_string());
                let thin =
                    if replicas > 1 { format!("{{ thin = {{ keep = {:?} }} }}, ", 1.0 / share) } else { String::new() };
                table(&format!(
                    "arrivals = {{ trace = {{ path = {path} }} }}\ntransform = [{thin}{{ max-requests = {OF_LOG} }}]"
                ))
            }
        };
        match &self.lengths {
            Lengths::Means(input, output) => {
                workload.insert("lengths".into(), log_normal(*input, *output, SIGMA, self.most));
            }
            Lengths::Mix(mix) => {
                workload.insert("lengths".into(), mix_of(mix));
            }
            Lengths::OfLog => {}
        }
        workload
    }

    /// The clients of the closed loop; 0 for another load.
    pub fn clients(&self, replicas: u32) -> u32 {
        if let Load::Clients(n) = self.load { n.div_ceil(replicas) } else { 0 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contradictions_are_refused() {
        let at = |said: Said| read(&said).map(drop).unwrap_err().pointed_at().map(str::to_owned);
        let said = |said: Said| read(&said).map(drop).unwrap_err().message().to_owned();
        let clients = Said { clients: Some(4), ..Said::default() };
        assert_eq!(said(Said { rate: Some(1.0), ..clients.clone() }), "--clients and --rate are two loads");
        assert_eq!(said(Said { input: Some(1.0), ..clients.clone() }), "--input without --output");
        assert!(
            said(Said { input: Some(1.0), lengths: Some("sharegpt".into()), ..clients.clone() }).contains("two kinds")
        );
        assert_eq!(at(Said { rate: Some(1.5), ..clients.clone() }).as_deref(), Some("--rate 1.5"));
        assert_eq!(at(Said { rate: Some(-1.0), ..Said::default() }).as_deref(), Some("-1"));
        assert_eq!(at(Said { lengths: Some("sharegtp".into()), ..clients.clone() }).as_deref(), Some("sharegtp"));
        assert!(said(Said { lengths: Some("sharegtp".into()), ..clients }).contains("no mix"));
    }

    #[test]
    fn replicas_share_the_load() {
        let asked = read(&Said { clients: Some(10), lengths: Some("sharegpt".into()), ..Said::default() }).unwrap();
        assert_eq!((asked.clients(4), asked.workload(4)["arrivals"]["closed-loop"].as_integer()), (3, Some(3)));
        let asked = read(&Said { rate: Some(3.0), lengths: Some("sharegpt".into()), ..Said::default() }).unwrap();
        assert_eq!(asked.workload(2)["arrivals"]["poisson"]["rate"].as_float(), Some(1.5));
    }
}
