//! `foretoken bench`: how fast the engine simulates an experiment. Times the engine alone, one run at a time, in this
//! process; the median over the repeats is what counts, the spread says whether to believe it.

use super::print;
use crate::cli::BenchArgs;
use crate::plan::Plan;
use crate::problem::Result;
use crate::setting::Setting;
use comfy_table::{CellAlignment, Table, presets};
use std::sync::atomic::AtomicBool;
use std::time::Instant;

/// Runs the command.
pub fn run(args: &BenchArgs) -> Result<()> {
    let plan = Plan::load(&args.file, &args.sets)?;
    let mut table = Table::new();
    table.load_style(presets::NOTHING);
    table.set_header([
        "sweep",
        "policy",
        "request-steps",
        "ms",
        "min",
        "max",
        "ns a request-step",
        "M request-steps/s",
    ]);
    for variant in &plan.variants {
        let setting = Setting::new(variant, plan.seeds[0])?;
        let choices: Vec<String> = variant.choices.iter().map(|c| format!("{}={}", c.name, c.value)).collect();
        for entrant in plan.policies.iter().filter(|e| !e.implied) {
            let never = AtomicBool::new(false);
            let mut request_steps = 0;
            let mut times: Vec<f64> = (0..args.repeat)
                .map(|_| {
                    let started = Instant::now();
                    let (run, _) = setting.run(&entrant.spec, f64::INFINITY, &never);
                    let seconds = started.elapsed().as_secs_f64();
                    request_steps = run.totals.request_steps;
                    seconds
                })
                .collect();
            times.sort_by(f64::total_cmp);
            let (median, min, max) = (times[times.len() / 2], times[0], times[times.len() - 1]);
            table.add_row([
                choices.join(" "),
                entrant.spec.label(),
                request_steps.to_string(),
                format!("{:.3}", median * 1e3),
                format!("{:.3}", min * 1e3),
                format!("{:.3}", max * 1e3),
                format!("{:.2}", median * 1e9 / request_steps as f64),
                format!("{:.1}", request_steps as f64 / median / 1e6),
            ]);
        }
    }
    table.column_iter_mut().skip(2).for_each(|c| {
        c.set_cell_alignment(CellAlignment::Right);
    });
    let lines = table.lines().fold(String::new(), |text, line| text + line.trim_end() + "\n");
    print(&format!("{}: median of {} runs, seed {}, engine alone\n{lines}", plan.name, args.repeat, plan.seeds[0]))
}
