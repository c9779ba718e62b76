//! `foretoken profile`: times the passes of a target and a draft on this machine. Writes the times, with the cost
//! models fitted to them, as a profile.

use super::{EngineLimits, ProfileArgs, WeightsFrom};
use crate::cli::format::Format;
use crate::commands::print;
use crate::work;
use foretoken_live::profile_pair::{self, ProfileRequest, profile};
use foretoken_live::profiling::Limits;
use foretoken_profiler::{Profile, Region, Role};
use foretoken_report::Staged;
use foretoken_run::spec::problem::{Exit, Problem, Result};
use foretoken_sim::Pair;
use std::fmt::Write;
use std::path::Path;
use std::time::SystemTime;

/// Measures the passes of target and draft, writes the profile and prints a summary. Fails with exit code 3 if the
/// profile is not trusted, for example because its linear fit is too far from the measured times; the profile is
/// written nevertheless.
pub fn run(args: &ProfileArgs) -> Result<()> {
    work().interrupt.keeps("what was measured is kept", "run the same command again to go on");
    let profile = profile(&request(args))?;
    if args.plot {
        plot(&args.output, &profile)?;
    }
    profile.warnings.iter().for_each(|w| eprintln!("warning: {w}"));
    match args.format {
        Format::Table => print(&summary(&profile))?,
        Format::Json => {
            print(&format!("{}\n", serde_json::to_string_pretty(&profile).expect("plain data always serialises")))?
        }
    }
    match profile.distrust() {
        None => Ok(()),
        Some(why) => {
            let message = format!("{} is written, but {why}", args.output.display());
            let help =
                "its table may still be good: hardware.truth = \"table\" uses it, and policies believe a bad line";
            Err(Problem::new(Exit::Negative, message).help(help))
        }
    }
}

/// What the profiler must measure, made from the command's arguments.
fn request(args: &ProfileArgs) -> ProfileRequest<'_> {
    let EngineLimits { max_model_len, max_num_seqs, max_num_batched_tokens } = args.engine;
    ProfileRequest {
        models: Pair { target: &args.target, draft: &args.draft },
        weights: args.weights.map(|from| match from {
            WeightsFrom::Random => profile_pair::WeightsFrom::Random,
            WeightsFrom::Checkpoint => profile_pair::WeightsFrom::Checkpoint,
        }),
        device: args.device.0,
        threads: args.threads.map(usize::from),
        instructions: args.instructions,
        limits: Limits { max_model_len, max_num_seqs, max_num_batched_tokens },
        quick: args.quick,
        time_budget_s: args.time_budget,
        seed: args.seed,
        output: &args.output,
        overwrite: args.overwrite,
        work: work(),
        now: || humantime::format_rfc3339_seconds(SystemTime::now()).to_string(),
    }
}

/// A summary of the profile in a few lines: the linear fits, their errors on held-out times, and the number of measured
/// shapes (sizes of passes).
fn summary(p: &Profile) -> String {
    let mut out = String::new();
    let (target, draft) = (&p.target.model, &p.draft.model);
    let device = format!("{}, {} threads", p.device.name, p.device.threads);
    let _ = writeln!(out, "profiled: {} with {} on {} ({device})", target.name, draft.name, p.device.kind);
    if let Some(speed) = &p.device.speed {
        let _ = writeln!(out, "speed   {speed}");
    }
    let _ = writeln!(out, "        alpha        gamma        delta        held-out error (linear / table), mean %");
    let _ = write!(out, "        ns/context   us/token     us/pass      ");
    for region in Region::ALL {
        let _ = write!(out, "{:<14}", region.name());
    }
    let _ = writeln!(out, "all");
    for role in Role::BOTH {
        let (m, c) = (p.of(role), p.belief(role));
        let (alpha, gamma, delta) = (c.alpha_s * 1e9, c.gamma_s * 1e6, c.delta_s * 1e6);
        let _ = write!(out, "{:<8}{alpha:<13.3}{gamma:<13.3}{delta:<13.2}", role.name());
        let errors = |linear: f64, table: f64| format!("{:.1} / {:.1}", linear * 100.0, table * 100.0);
        for region in Region::ALL {
            let both = m.held_out.linear.of(region).zip(m.held_out.table.of(region));
            let _ = write!(out, "{:<14}", both.map_or("-".to_owned(), |(l, t)| errors(l, t)));
        }
        let _ = writeln!(out, "{}", errors(m.held_out.linear.overall, m.held_out.table.overall));
    }
    let percent = |x: f64| format!("{:.1} %", x * 100.0);
    for role in Role::BOTH {
        let m = p.of(role);
        let (spread, repeat, n) = (percent(m.noise_cv), percent(m.repeatability), m.measured.len());
        let _ = writeln!(out, "{:<8}{n} shapes, spread {spread}, repeatability {repeat}", role.name());
    }
    let _ = writeln!(out, "drift   {}", percent(p.measuring.drift));
    out
}

fn plot(out: &Path, profile: &Profile) -> Result<()> {
    for figure in foretoken_run::profiled::figures(profile) {
        let path = out.with_extension(figure.file);
        Staged::write_all_to(&path, figure.svg.as_bytes())
            .map_err(|e| Problem::failed(e.to_string()).help("free some space or make the folder writable"))?;
    }
    Ok(())
}
